// The settings of the data: paths, blends, samples and their packing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

/// What a data set makes of its text, and what a family of models trains on.
enum class SampleKind { gpt, bert, t5, labelled };

/// What an encoder is finetuned for: to classify texts, or to rank choices. The last three have the
/// files of Megatron-LM's tasks.
enum class FinetuneTask { none, classify, rank, mnli, qqp, race };
inline bool ranks_choices(FinetuneTask task) {
  return task == FinetuneTask::rank || task == FinetuneTask::race;
}

/// Fill-in-the-middle samples: parts of documents are reordered as prefix, suffix, middle (PSM) or
/// suffix, prefix, middle (SPM).
struct FimConfig {
  bool fim_data = false;
  double fim_rate = 0.5;         ///< share of the pieces that are reordered
  double fim_spm_rate = 0.5;     ///< share of the reordered pieces that are SPM
  std::string fim_split_sample;  ///< token that divides a document into fragments; "": none
  std::optional<double> fim_fragment_rate;  ///< share of the fragments that are reordered
  std::string fim_no_prefix;                ///< pieces that start with this stay; "": none
  std::string fim_prefix_token = "<fim_prefix>", fim_middle_token = "<fim_middle>",
              fim_suffix_token = "<fim_suffix>", fim_pad_token = "<fim_pad>",
              fim_eod_token = "<|endoftext|>";
};

struct DataConfig {
  std::vector<std::string> data_path, train_data_path, valid_data_path, test_data_path;
  std::string data_args_path, per_split_data_args_path;
  std::vector<std::string> blend_schedule;  ///< words of config/blend_schedule.h, or their file
  std::string split;                        ///< default "969, 30, 1" with data_path
  std::string data_cache_path;
  bool mock_data = false;
  bool mmap_bin_files = true;
  std::int64_t num_workers = 2;
  std::string object_storage_cache_path;  ///< copies of data from http(s):// and s3:// paths
  std::int64_t object_storage_cache_mib = 65536;  ///< bound of the copies of .bin files
  std::int64_t object_storage_chunk_mib = 256;    ///< part of a .bin file that is copied at once
  std::string dataloader_type = "single";         ///< single | cyclic | external
  bool data_sharding = true;                      ///< of cyclic: each rank shuffles its own part
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  bool dataloader_inter_document_masking = false;     ///< pack the documents of samples
  std::string document_packing_strategy = "wrapped";  ///< wrapped | bfd | bfd_split
  bool allow_ambiguous_pad_tokens = false;
  double mid_level_dataset_surplus = 0.005;
  double mask_prob = 0.15;              ///< share of the tokens of masked samples that are masked
  double short_seq_prob = 0.1;          ///< probability that a masked sample is shorter
  bool keep_padding = false;            ///< compute the padding of BERT's samples too
  std::int64_t decoder_seq_length = 0;  ///< of T5
  std::int64_t vocab_extra_ids = 0;     ///< sentinels of T5, behind a vocabulary that has none
  FimConfig fim;
  FinetuneTask task = FinetuneTask::none;
  std::int64_t num_choices = 1;  ///< of each sample; finetuning takes it from the data
  bool sft = false;  ///< the data are conversations in JSON lines; only answers are trained on
  std::string sft_tokenizer_prompt_format = "nemotron-h-aligned";
  std::string sft_packing_strategy = "line";  ///< line | bfd | bfd_split
};

}  // namespace megatron
