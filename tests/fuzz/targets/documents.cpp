// Documents. The input is a file; the size of the input chooses whether it holds JSON lines or
// text, and what a document is.
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/error.h"
#include "megatron/datasets/document_reader.h"
#include "megatron/datasets/text_chunks.h"

namespace megatron::fuzz {

void parse_documents(std::string_view input) {
  const std::string path = write_input("documents", input);
  const auto kind = static_cast<DocumentKind>(input.size() % 5);
  const InputFormat format =
      kind == DocumentKind::json_line ? InputFormat::json : InputFormat::text;
  ChunkReader chunks({path}, {.text_kind = kind, .chunk_size = 64, .format = format});
  DocumentReader reader({"text", "title"}, /*keeps_invalid_utf8=*/input.size() % 2 == 0);
  for (int i = 0; i < 1000; ++i) {
    const auto chunk = chunks.next();
    if (!chunk) return;
    for (const TextDocument& document : split_documents(*chunk)) {
      const std::string source = path + ":" + std::to_string(document.line);
      try {
        reader.read(*chunk, document, source);
      } catch (const UserError& error) {
        require(error.parts().what.find(source) != std::string::npos, "no line is named");
      }
    }
  }
}

}  // namespace megatron::fuzz
