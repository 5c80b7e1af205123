#include "megatron/datasets/preprocess_checks.h"

#include <algorithm>
#include <set>

#include "megatron/base/error.h"
#include "megatron/datasets/text_chunks.h"

namespace megatron {

std::string dataset_prefix(const PreprocessOptions& options, const std::string& key) {
  return options.output_prefix + "_" + key + (options.sentences ? "_sentence" : "_document");
}

namespace {

void check_cleaning(const PreprocessOptions& options, const std::vector<std::string>& files) {
  if (options.cleaning.removed_file.empty()) return;
  std::vector<fs::path> others(files.begin(), files.end());
  others.insert(others.end(), options.encoder_files.begin(), options.encoder_files.end());
  for (const std::string& key : options.json_keys)
    for (const char* ending : {".bin", ".idx"})
      others.emplace_back(dataset_prefix(options, key) + ending);
  check_removed_file(options.cleaning.removed_file, others);
}

/// Returns whether a file belongs to a run of this prefix that was killed: a part or the
/// checkpoint.
bool is_own_file(const fs::path& file, const fs::path& output_prefix) {
  const fs::path normal = fs::absolute(file).lexically_normal(),
                 prefix = fs::absolute(output_prefix).lexically_normal();
  const std::string name = normal.filename().string();
  return normal.parent_path() == prefix.parent_path() &&
         name.starts_with(prefix.filename().string()) && name.find(".partial") != std::string::npos;
}

}  // namespace

std::vector<std::string> input_files(const PreprocessOptions& options) {
  std::vector<std::string> files = expand_inputs(options.inputs);
  std::erase_if(files, [&](const std::string& file) {
    return file != kStandardInput && std::ranges::count(options.inputs, file) == 0 &&
           is_own_file(file, options.output_prefix);
  });
  return files;
}

void check_preprocessing(const PreprocessOptions& options, const std::vector<std::string>& files) {
  MEGATRON_CHECK(options.vocab_size > 0 && options.workers > 0 && options.log_interval > 0 &&
                     options.partitions > 0,
                 "vocab_size, workers, log_interval and partitions must be positive");
  if (options.json_keys.empty())
    throw UserError({"--json-keys is empty", "", "name at least one field"});
  if (std::set(options.json_keys.begin(), options.json_keys.end()).size() !=
      options.json_keys.size())
    throw UserError({"--json-keys names a field twice", "", "remove one of them"});
  if (options.append_eod && (options.eod < 0 || options.eod >= options.vocab_size))
    throw UserError({"--append-eod: the tokenizer has no end-of-document token", "",
                     "leave out --append-eod, or choose a tokenizer that has one"});
  check_cleaning(options, files);
  for (const std::string& file : files) {
    if (is_text_file(file) && options.conversations)
      throw UserError({file + ": a text file has no conversations", "",
                       "give JSON lines with lists of messages"});
    if (is_text_file(file) && options.json_keys.size() > 1)
      throw UserError({file + ": a text file has no fields",
                       std::to_string(options.json_keys.size()) + " --json-keys were given",
                       "leave out --json-keys"});
  }
}

}  // namespace megatron
