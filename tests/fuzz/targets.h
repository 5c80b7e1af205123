// The functions of targets/, one for each source. Each says in its source what an input holds.
#pragma once

#include <string_view>

namespace megatron::fuzz {

void parse_blend_schedules(std::string_view input);
void parse_chat_output(std::string_view input);
void parse_chat_template(std::string_view input);
void parse_command_line(std::string_view input);
void parse_config_file(std::string_view input);
void parse_conversations(std::string_view input);
void parse_data_names(std::string_view input);
void parse_dcp_metadata(std::string_view input);
void parse_decode(std::string_view input);
void parse_documents(std::string_view input);
void parse_duplicate_journal(std::string_view input);
void parse_encode(std::string_view input);
void parse_expressions(std::string_view input);
void parse_gguf(std::string_view input);
void parse_gpt2_files(std::string_view input);
void parse_grammars(std::string_view input);
void parse_http_answers(std::string_view input);
void parse_index_stamp(std::string_view input);
void parse_indexed_dataset(std::string_view input);
void parse_json_number(std::string_view input);
void parse_labelled_texts(std::string_view input);
void parse_manifest(std::string_view input);
void parse_metrics_log(std::string_view input);
void parse_npy(std::string_view input);
void parse_object_location(std::string_view input);
void parse_pickle(std::string_view input);
void parse_preprocess_checkpoint(std::string_view input);
void parse_punkt_model(std::string_view input);
void parse_safetensors(std::string_view input);
void parse_sentencepiece(std::string_view input);
void parse_text_stream(std::string_view input);
void parse_tiktoken(std::string_view input);
void parse_tokenizer_config(std::string_view input);
void parse_tokenizer_json(std::string_view input);
void parse_torch_file(std::string_view input);
void parse_word_splitter(std::string_view input);
void parse_wordpiece(std::string_view input);

}  // namespace megatron::fuzz
