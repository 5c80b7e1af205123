#include "megatron/datasets/encoder_identity.h"

#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/index_stamp.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {

std::string file_identity(const fs::path& path) {
  const FileStamp stamp = file_stamp(path).value_or(FileStamp{});
  return path.string() + " " + std::to_string(stamp.bytes) + " " + std::to_string(stamp.time_ns) +
         "\n";
}

std::string encoder_flags(const TokenizerConfig& config) {
  const TokenizerConfig resolved = with_resolved_type(config);
  std::string text;
  for (const Field& field : tokenizer_table().set().fields)
    for (const std::string& value : field.get(&resolved)) text += field.name + "=" + value + "\n";
  return text;
}

std::string encoder_identity(const TokenizerConfig& config) {
  std::string text = encoder_flags(config);
  for (const fs::path& file : tokenizer_paths(config)) text += file_identity(file);
  return text;
}

}  // namespace megatron
