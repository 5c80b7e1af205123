// The flags of data, tokenizer and checkpoints.
#include "megatron/config/settings_tables.h"

namespace megatron {

const FieldTable<DataConfig>& data_table() {
  using Config = DataConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Data");
    t.field("data_path", &Config::data_path,
            "prefix of .bin and .idx; or weight prefix weight prefix ...; or several prefixes")
        .value_name("PREFIX");
    t.field("train_data_path", &Config::train_data_path, "the same for training alone")
        .value_name("PREFIX");
    t.field("valid_data_path", &Config::valid_data_path, "the same for validation alone")
        .value_name("PREFIX");
    t.field("test_data_path", &Config::test_data_path, "the same for the test alone")
        .value_name("PREFIX");
    t.field("data_args_path", &Config::data_args_path, "file that holds what --data-path would")
        .value_name("FILE");
    t.field("per_split_data_args_path", &Config::per_split_data_args_path,
            "JSON file with keys train, valid, test")
        .value_name("FILE");
    t.field("split", &Config::split,
            "shares of training, validation and test; \"969, 30, 1\" with --data-path")
        .value_name("A,B,C");
    t.field("data_cache_path", &Config::data_cache_path, "folder of the index caches")
        .value_name("DIR");
    t.field("mock_data", &Config::mock_data, "synthetic data");
    t.field("mmap_bin_files", &Config::mmap_bin_files, "read .bin files instead of mapping them");
    t.field("num_workers", &Config::num_workers, "threads that prepare batches")
        .at_least(0)
        .at_most(1024);
    t.field("dataloader_type", &Config::dataloader_type,
            "single: once through in order; cyclic: shuffled, again and again")
        .choices({"single", "cyclic"});
    t.field("reset_position_ids", &Config::reset_position_ids,
            "count positions from each end of document");
    t.field("reset_attention_mask", &Config::reset_attention_mask, "attend within a document only");
    t.field("eod_mask_loss", &Config::eod_mask_loss, "no loss on end-of-document tokens");
    t.field("allow_ambiguous_pad_tokens", &Config::allow_ambiguous_pad_tokens,
            "mask the padding token also where it is another token too");
    t.field("mid_level_dataset_surplus", &Config::mid_level_dataset_surplus,
            "further samples of each blended data set")
        .at_least(0);
    return t;
  }();
  return table;
}

const FieldTable<TokenizerConfig>& tokenizer_table() {
  using Config = TokenizerConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Tokenizer");
    t.field("tokenizer_type", &Config::tokenizer_type, "kind of tokenizer")
        .choices({"NullTokenizer", "ByteTokenizer", "GPT2BPETokenizer", "HuggingFaceTokenizer"})
        .otherwise(
            "use --tokenizer-type HuggingFaceTokenizer with the model's tokenizer.json as "
            "--tokenizer-model");
    t.field("tokenizer_model", &Config::tokenizer_model,
            "tokenizer.json, or the folder that holds it")
        .value_name("FILE");
    t.field("vocab_file", &Config::vocab_file, "vocab.json of GPT-2's kind").value_name("FILE");
    t.field("merge_file", &Config::merge_file, "merges.txt of GPT-2's kind").value_name("FILE");
    t.field("vocab_size", &Config::vocab_size, "size of the vocabulary, for NullTokenizer")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("padded_vocab_size", &Config::padded_vocab_size,
            "rows of the embedding, at least as many as the tokenizer has ids; none: as many")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("make_vocab_size_divisible_by", &Config::make_vocab_size_divisible_by,
            "the vocabulary is padded to a multiple of this")
        .at_least(1)
        .at_most(kMaxSize);
    return t;
  }();
  return table;
}

const FieldTable<CheckpointConfig>& checkpoint_table() {
  using Config = CheckpointConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Checkpoints");
    t.field("save", &Config::save, "folder to save to").value_name("DIR");
    t.field("save_interval", &Config::save_interval, "iterations between checkpoints")
        .at_least(1)
        .alias("persistent-save-interval")
        .at_most(kMaxSize);
    t.field("save_retain_interval", &Config::save_retain_interval,
            "keep the checkpoints of these iterations and the last one only; none: keep all")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("non_persistent_save_interval", &Config::non_persistent_save_interval,
            "iterations between checkpoints of which only the newest is kept")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("non_persistent_ckpt_type", &Config::non_persistent_ckpt_type,
            "where these lie: global, beside the others; local, on this machine")
        .choices({"global", "local"});
    t.field("non_persistent_global_ckpt_dir", &Config::non_persistent_global_ckpt_dir,
            "their folder; none: non_persistent in --save and --load")
        .value_name("DIR");
    t.field("non_persistent_local_ckpt_dir", &Config::non_persistent_local_ckpt_dir,
            "their folder on this machine")
        .value_name("DIR");
    t.field("load", &Config::load, "checkpoint or Hugging Face folder to start from")
        .value_name("DIR");
    t.field("ckpt_step", &Config::ckpt_step, "iteration to load; none: the latest")
        .at_least(0)
        .at_most(kMaxSize);
    t.field("finetune", &Config::finetune, "load the weights only, and start at iteration 0");
    t.field("use_checkpoint_args", &Config::use_checkpoint_args,
            "take the architecture from the checkpoint")
        .note("is always so: flags may repeat it, not contradict it");
    t.field("exit_on_missing_checkpoint", &Config::exit_on_missing_checkpoint,
            "refuse to start from scratch when --load holds nothing");
    t.field("save_optim", &Config::save_optim, "leave the optimizer out of checkpoints");
    t.field("save_rng", &Config::save_rng, "leave the random state out of checkpoints");
    t.field("load_optim", &Config::load_optim, "do not load optimizer and schedule");
    t.field("load_rng", &Config::load_rng, "do not load the random state");
    t.field("ckpt_format", &Config::ckpt_format,
            "accepted for Megatron's scripts: checkpoints have one format here")
        .choices({"torch", "torch_dist", "torch_dcp", "fsdp_dtensor"})
        .note("checkpoints have one format here, whatever the layout");
    return t;
  }();
  return table;
}

}  // namespace megatron
