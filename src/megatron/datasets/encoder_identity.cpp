#include "megatron/datasets/encoder_identity.h"

#include <algorithm>
#include <vector>

#include "megatron/config/settings_tables.h"
#include "megatron/datasets/index_stamp.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

std::string file_identity(const fs::path& path) {
  const FileStamp stamp = file_stamp(path).value_or(FileStamp{});
  return path.string() + " " + std::to_string(stamp.bytes) + " " + std::to_string(stamp.time_ns) +
         "\n";
}

std::string encoder_identity(const TokenizerConfig& config) {
  const TokenizerConfig resolved = with_resolved_type(config);
  std::string text;
  for (const Field& field : tokenizer_table().set().fields)
    for (const std::string& value : field.get(&resolved)) text += field.name + "=" + value + "\n";
  for (const std::string& name :
       {config.tokenizer_model, config.vocab_file, config.merge_file, config.tokenizer_metadata}) {
    std::error_code code;
    std::vector<fs::path> files = {name};
    if (fs::is_directory(name, code)) {
      for (const auto& file : fs::directory_iterator(name, code)) files.push_back(file.path());
      std::ranges::sort(files);
    }
    for (const fs::path& file : files) text += file_identity(file);
  }
  return text;
}

}  // namespace megatron
