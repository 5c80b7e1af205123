#include "megatron/inference/input_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

std::vector<std::string> read_prompts(const std::filesystem::path& path, std::ostream& notes) {
  const std::string bytes = read_file(path);
  const auto replaced = replace_invalid_utf8(bytes);
  if (replaced)
    notes << "note: " << path.string() << " contains invalid UTF-8, which is read as U+FFFD\n";
  const std::string& content = replaced ? *replaced : bytes;
  std::vector<std::string> prompts;
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < content.size(); ++number) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const std::string source = path.string() + ", line " + std::to_string(number);
    if (path.extension() == ".jsonl")
      line = JsonCursor(parse_json(line, source), source)["text"].text();
    prompts.push_back(line);
  }
  if (prompts.empty())
    throw UserError(
        {"--prompt-file " + path.string(), "contains no prompt", "write one prompt per line"});
  return prompts;
}

std::vector<std::int64_t> read_ids(const std::string& line, const std::string& source) {
  const JsonCursor ids = JsonCursor(parse_json(line, source), source)["ids"];
  if (!ids->is_array())
    throw UserError({source + ": field 'ids' must be a list of token ids", ids->dump(), ""});
  std::vector<std::int64_t> result;
  for (const Json& id : *ids) {
    if (!id.is_number_integer())
      throw UserError({source + ": ids[" + std::to_string(result.size()) + "] must be an integer",
                       id.dump(), ""});
    result.push_back(id.get<std::int64_t>());
  }
  return result;
}

}  // namespace megatron
