#include "fuzz/target.h"

#include <cctype>
#include <fstream>

#include "fuzz/targets.h"
#include "megatron/base/error.h"
#include "support/temporary_folder.h"

namespace megatron::fuzz {
namespace {

/// A list of problems has further lines, which are indented.
bool is_one_message(std::string_view what) {
  for (std::size_t i = 0; i < what.size(); ++i)
    if (std::iscntrl(static_cast<unsigned char>(what[i])) != 0 &&
        !what.substr(i).starts_with("\n  "))
      return false;
  return true;
}

}  // namespace

std::span<const Target> targets() {
  static constexpr Target kTargets[] = {
      {"blend_schedule", parse_blend_schedules},
      {"chat_output", parse_chat_output},
      {"chat_template", parse_chat_template},
      {"command_line", parse_command_line},
      {"config_file", parse_config_file},
      {"conversations", parse_conversations},
      {"data_names", parse_data_names},
      {"dcp_metadata", parse_dcp_metadata},
      {"decode", parse_decode},
      {"documents", parse_documents},
      {"duplicate_journal", parse_duplicate_journal},
      {"encode", parse_encode},
      {"expressions", parse_expressions},
      {"gguf", parse_gguf},
      {"gpt2_files", parse_gpt2_files},
      {"grammars", parse_grammars},
      {"http_answers", parse_http_answers},
      {"index_stamp", parse_index_stamp},
      {"indexed_dataset", parse_indexed_dataset},
      {"json_number", parse_json_number},
      {"labelled_texts", parse_labelled_texts},
      {"manifest", parse_manifest},
      {"metrics_log", parse_metrics_log},
      {"npy", parse_npy},
      {"object_location", parse_object_location},
      {"pickle", parse_pickle},
      {"preprocess_checkpoint", parse_preprocess_checkpoint},
      {"punkt_model", parse_punkt_model},
      {"safetensors", parse_safetensors},
      {"sentencepiece", parse_sentencepiece},
      {"text_stream", parse_text_stream},
      {"tiktoken", parse_tiktoken},
      {"tokenizer_config", parse_tokenizer_config},
      {"tokenizer_json", parse_tokenizer_json},
      {"torch_file", parse_torch_file},
      {"word_splitter", parse_word_splitter},
      {"wordpiece", parse_wordpiece},
  };
  return kTargets;
}

void run(const Target& target, std::string_view input) {
  try {
    target.parse(input);
  } catch (const UserError& error) {
    const std::string& what = error.parts().what;
    require(!what.empty() && is_one_message(what), "the message has several lines: " + what);
  } catch (const Find&) {
    throw;
  } catch (const std::exception& error) {
    throw Find(std::string(target.name) + ": not a UserError: " + error.what());
  }
}

std::string input_folder() {
  static const TemporaryFolder folder(std::filesystem::exists("/dev/shm")
                                          ? std::filesystem::path("/dev/shm")
                                          : std::filesystem::temp_directory_path());
  return folder.path().string();
}

std::string write_input(const std::string& name, std::string_view content) {
  const std::string path = input_folder() + "/" + name;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

std::string_view take_part(std::string_view& input) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  const std::string_view part = input.substr(0, end);
  input.remove_prefix(std::min(end + 1, input.size()));
  return part;
}

}  // namespace megatron::fuzz
