// What Punkt knows of a language. The input holds the four files of nltk's punkt_tab and a text,
// separated by NUL bytes.
#include <optional>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/datasets/punkt_parameters.h"
#include "megatron/datasets/punkt_splitter.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::fuzz {

void parse_punkt_model(std::string_view input) {
  for (const char* name :
       {"abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab"})
    write_input(name, take_part(input));
  const std::optional<std::string> valid = replace_invalid_utf8(input);
  const std::string_view text = valid ? *valid : input;
  const PunktSplitter splitter(load_punkt(input_folder()), text.size() % 2 == 0);
  const char* end = text.data();
  for (const std::string_view sentence : splitter.split(text)) {
    require(sentence.data() >= end, "sentences overlap");
    end = sentence.data() + sentence.size();
    require(end <= text.data() + text.size(), "a sentence ends behind the text");
  }
}

}  // namespace megatron::fuzz
