// Declares the flags of data sets, tokenizers and checkpoints.
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {
namespace {

constexpr std::string_view kTokens = "the same text becomes different tokens";
constexpr std::string_view kSamples = "the same documents become different samples";
constexpr std::string_view kMask = "attention sees different tokens";

const FieldTable<FimConfig>& fim_table() {
  using Config = FimConfig;
  return field_table<Config>([](auto& t) {
    t.group("Fill in the middle").following().left_out_of_check().breaks_phase(kSamples);
    t.field("fim_data", &Config::fim_data,
            "train to fill in the middle: cut pieces of text into prefix, middle and suffix, and "
            "move the middle to the end");
    t.field("fim_rate", &Config::fim_rate, "probability that a piece of text is reordered")
        .between(0, 1);
    t.field("fim_spm_rate", &Config::fim_spm_rate,
            "probability that the suffix of a reordered piece comes before its prefix")
        .between(0, 1);
    t.field("fim_split_sample", &Config::fim_split_sample,
            "token that divides a document into fragments, which are reordered one by one")
        .value_name("TOKEN");
    t.field("fim_fragment_rate", &Config::fim_fragment_rate,
            "probability that a fragment is reordered; required by --fim-split-sample")
        .between(0, 1);
    t.field("fim_no_prefix", &Config::fim_no_prefix,
            "leave pieces alone whose text begins with this")
        .value_name("TEXT");
    t.following().on_resume("");
    t.field("fim_prefix_token", &Config::fim_prefix_token, "token before the prefix")
        .value_name("TOKEN");
    t.field("fim_middle_token", &Config::fim_middle_token, "token before the middle")
        .value_name("TOKEN");
    t.field("fim_suffix_token", &Config::fim_suffix_token, "token before the suffix")
        .value_name("TOKEN");
    t.field("fim_pad_token", &Config::fim_pad_token,
            "token that fills a sample which became shorter")
        .value_name("TOKEN");
    t.field("fim_eod_token", &Config::fim_eod_token, "token between the documents of a sample")
        .value_name("TOKEN");
  });
}

}  // namespace

const FieldTable<DataConfig>& data_table() {
  using Config = DataConfig;
  return field_table<Config>([](auto& t) {
    t.group("Data").following().left_out_of_check();
    t.field("data_path", &Config::data_path,
            "path prefix of the .bin and .idx files, several prefixes, or a blend written as "
            "weight prefix weight prefix ...")
        .value_name("PREFIX")
        .breaks_phase(kOtherSamples)
        .left_out_of_check("data (mock data are used)");
    t.field("train_data_path", &Config::train_data_path, "like --data-path, for training only")
        .value_name("PREFIX")
        .alias("train-data")
        .breaks_phase(kOtherSamples)
        .left_out_of_check("data (mock data are used)");
    t.field("valid_data_path", &Config::valid_data_path, "like --data-path, for validation only")
        .value_name("PREFIX")
        .alias("valid-data")
        .left_out_of_check("data (mock data are used)");
    t.field("test_data_path", &Config::test_data_path, "like --data-path, for testing only")
        .value_name("PREFIX")
        .left_out_of_check("data (mock data are used)");
    t.field("data_args_path", &Config::data_args_path, "file with the arguments of --data-path")
        .value_name("FILE")
        .breaks_phase(kOtherSamples)
        .left_out_of_check("data (mock data are used)");
    t.field("per_split_data_args_path", &Config::per_split_data_args_path,
            "JSON file with the data paths under the keys train, valid and test")
        .value_name("FILE")
        .breaks_phase(kOtherSamples)
        .left_out_of_check("data (mock data are used)");
    t.field("blend_schedule", &Config::blend_schedule,
            "change the weights of the training sources after given iterations: \"0: 0.7 A 0.3 B "
            "1000: 0.2 A 0.8 C\" mixes A and B, and after 1000 iterations A and C; each source "
            "continues where it was. The name of a file with these words works too")
        .value_name("ITERATION: WEIGHT PREFIX")
        .breaks_resume(kOtherSamples);
    t.field("split", &Config::split,
            "fractions of the data for training, validation and testing; default with "
            "--data-path: \"969, 30, 1\"")
        .value_name("A,B,C")
        .breaks_resume(
            "documents move between training, validation and test: validation may contain "
            "training data");
    t.field("data_cache_path", &Config::data_cache_path, "folder of the data set index caches")
        .value_name("DIR")
        .alias("path-to-cache");
    t.field("mock_data", &Config::mock_data, "train on synthetic data").breaks_phase(kOtherSamples);
    t.field("mmap_bin_files", &Config::mmap_bin_files,
            "read .bin files with file reads instead of memory-mapping them");
    t.field("object_storage_cache_path", &Config::object_storage_cache_path,
            "folder for copies of data whose path begins with s3://, http:// or https://")
        .value_name("DIR");
    t.field("object_storage_cache_mib", &Config::object_storage_cache_mib,
            "largest total size in MiB of the parts of .bin files that are kept in "
            "--object-storage-cache-path; those that were not used for longest are removed")
        .between(1, 1e9);
    t.field("object_storage_chunk_mib", &Config::object_storage_chunk_mib,
            "size in MiB of the parts in which .bin files are copied to "
            "--object-storage-cache-path")
        .between(1, 1e6);
    t.field("num_workers", &Config::num_workers, "number of threads that prepare batches")
        .between(0, 1024);
    t.field("dataloader_type", &Config::dataloader_type,
            "single: one pass in order; cyclic: repeated shuffled passes, in "
            "Megatron-LM's order, which depends on the data-parallel size; external: those "
            "of a program that links the library, in order")
        .choices({"single", "cyclic", "external"})
        .breaks_phase(kOtherSamples);
    t.field("data_sharding", &Config::data_sharding,
            "with --dataloader-type cyclic, shuffle all samples together, not the part of each "
            "data-parallel rank")
        .breaks_phase(kOtherSamples);
    t.field("reset_position_ids", &Config::reset_position_ids,
            "restart the position ids after each end-of-document token")
        .breaks_phase("positions are counted differently")
        .kept_in_check();
    t.field("reset_attention_mask", &Config::reset_attention_mask,
            "restrict attention to tokens of the same document")
        .breaks_phase(kMask)
        .kept_in_check();
    t.field("eod_mask_loss", &Config::eod_mask_loss, "exclude end-of-document tokens from the loss")
        .breaks_phase("the loss counts different tokens")
        .kept_in_check();
    t.field("dataloader_inter_document_masking", &Config::dataloader_inter_document_masking,
            "pack the documents of a microbatch as sequences of their own: attention and positions "
            "restart where a document of the data begins, and no work is done across documents")
        .breaks_phase(kMask)
        .kept_in_check();
    t.field("document_packing_strategy", &Config::document_packing_strategy,
            "which documents share a sequence; wrapped: those that follow each other in random "
            "order, as in Megatron-LM; bfd: those that fill it best (best-fit decreasing), longer "
            "ones are cut; bfd_split: longer ones are divided")
        .choices({"wrapped", "bfd", "bfd_split"})
        .breaks_phase(kSamples)
        .kept_in_check();
    t.field("allow_ambiguous_pad_tokens", &Config::allow_ambiguous_pad_tokens,
            "mask the padding token even if its id is also that of another token");
    t.field("mid_level_dataset_surplus", &Config::mid_level_dataset_surplus,
            "fraction of extra samples to index for each blended data set")
        .at_least(0);
    t.group("Samples of BERT and T5");
    t.field("mask_prob", &Config::mask_prob, "share of the tokens that are masked")
        .above(0)
        .below(1)
        .breaks_phase(kSamples)
        .kept_in_check();
    t.field("short_seq_prob", &Config::short_seq_prob,
            "probability that a sample is shorter than --seq-length")
        .between(0, 1)
        .breaks_phase(kSamples)
        .kept_in_check();
    t.field("keep_padding", &Config::keep_padding,
            "run the padding of BERT's samples through the layers, as Megatron-LM does, in place "
            "of leaving it out; losses and gradients are the same but for rounding")
        .kept_in_check();
    t.field("decoder_seq_length", &Config::decoder_seq_length,
            "tokens of T5's decoder; required by t5")
        .between(0, kMaxSize)
        .breaks_phase(kSamples)
        .kept_in_check();
    t.field("vocab_extra_ids", &Config::vocab_extra_ids,
            "number of T5's sentinels, whose ids follow the vocabulary if it has no <extra_id_0>")
        .between(0, 100000)
        .breaks_phase(kSamples)
        .kept_in_check();
    t.field("task", &Config::task,
            "finetune bert on labelled texts, which --train-data and --valid-data name: classify "
            "them, or rank choices; MNLI, QQP and RACE do so with files of these names")
        .otherwise(
            "the tasks of retrievers, ICT-ZEROSHOT-NQ and RET-FINETUNE-NQ, were removed from "
            "Megatron-LM; `megatron evaluate` has WIKITEXT103 and LAMBADA")
        .breaks_phase(kSamples)
        .kept_in_check();
    t.include(&Config::fim, fim_table());
    t.group("Supervised finetuning");
    t.field("sft", &Config::sft,
            "finetune on conversations: --data-path names JSON lines with \"messages\", which are "
            "packed without attention between them; only answers have a loss")
        .breaks_phase(kSamples)
        .left_out_of_check("--sft");
    t.field("sft_tokenizer_prompt_format", &Config::sft_tokenizer_prompt_format,
            "text around the messages of a conversation; identity: nothing; default: the chat "
            "template of --tokenizer-model, and questions have a loss too")
        .choices({"nemotron-h-aligned", "nemotron-nano-v2", "identity", "default"})
        .otherwise("use identity with messages that contain the whole text")
        .breaks_phase(kSamples);
    t.field("sft_packing_strategy", &Config::sft_packing_strategy,
            "which conversations share a sequence; line: those of a line, as in Megatron-LM; bfd: "
            "those that fill it best (best-fit decreasing), longer ones are cut; bfd_split: "
            "longer ones are divided")
        .choices({"line", "bfd", "bfd_split"})
        .breaks_phase(kSamples);
  });
}

const FieldTable<TokenizerConfig>& chat_template_table() {
  return field_table<TokenizerConfig>([](auto& t) {
    t.group("Conversations");
    t.field("chat_template", &TokenizerConfig::chat_template,
            "the chat template, where the model has none or several: a Jinja file, a JSON file "
            "with the field chat_template, or the name of one of the model's")
        .value_name("FILE|NAME")
        .breaks_phase(kSamples);
  });
}

const FieldTable<TokenizerConfig>& tokenizer_table() {
  using Config = TokenizerConfig;
  return field_table<Config>([](auto& t) {
    constexpr const char* kType = "tokenizer_type";
    t.group("Tokenizer").following().breaks_resume(kTokens);
    t.field("tokenizer_type", &Config::tokenizer_type, "type of the tokenizer")
        .choices({"NullTokenizer", "ByteTokenizer", "GPT2BPETokenizer", "HuggingFaceTokenizer",
                  "TikTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer",
                  "Llama2Tokenizer", "BertWordPieceLowerCase", "BertWordPieceCase", "SFTTokenizer",
                  "MultimodalTokenizer", "NullMultimodalTokenizer"})
        .otherwise(
            "use --tokenizer-type HuggingFaceTokenizer with the model's tokenizer.json as "
            "--tokenizer-model");
    t.field(
         "tokenizer_model", &Config::tokenizer_model,
         "file of the tokenizer, or the folder that contains it: tokenizer.json, a SentencePiece "
         "model, a tiktoken file or tekken.json")
        .value_name("FILE")
        .only_with(kType, {"GPT2BPETokenizer", "HuggingFaceTokenizer", "TikTokenizer",
                           "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer",
                           "BertWordPieceLowerCase", "BertWordPieceCase", "SFTTokenizer",
                           "MultimodalTokenizer"});
    t.field("vocab_file", &Config::vocab_file,
            "vocab.json in GPT-2's format, or vocab.txt in BERT's")
        .value_name("FILE");
    t.field("merge_file", &Config::merge_file, "merges.txt in GPT-2's format").value_name("FILE");
    t.field("tiktoken_pattern", &Config::tiktoken_pattern,
            "pattern that splits text for a tiktoken file: r50k_base, p50k_base, cl100k_base, "
            "o200k_base, llama3, qwen, tekken, v1, v2 or a regular expression; none: that of the "
            "file")
        .value_name("NAME")
        .only_with(kType, {"TikTokenizer"});
    t.field("tiktoken_num_special_tokens", &Config::tiktoken_num_special_tokens,
            "number of special tokens before the vocabulary of Megatron's TikTokenizer")
        .between(7, 1 << 20)
        .only_with(kType, {"TikTokenizer"});
    t.field(
        "tokenizer_special_tokens", &Config::tokenizer_special_tokens,
        "special tokens to add to tokenizer.json, or the first ones of Megatron's TikTokenizer, "
        "with <unk> <s> </s> <mask> <pad> <cls> <sep> among them; none: these seven");
    t.field("tokenizer_prompt_format", &Config::tokenizer_prompt_format,
            "text around the messages of a conversation, for MultimodalTokenizer; llama3, chatml, "
            "nemotron6-moe: the chat template of --tokenizer-model")
        .choices({"mistral", "llama3", "llama3p1", "llama3p2", "nvlm-yi-34b", "chatml", "qwen2p0",
                  "qwen2p5", "nemotron5", "nemotron5-aligned", "nemotron6-moe"})
        .only_with(kType, {"MultimodalTokenizer"});
    t.field("image_tag_type", &Config::image_tag_type,
            "tags that MultimodalTokenizer writes around each <image>; nvlm: <Image> and </Image>; "
            "internvl: <img> and </img>; none: no tags")
        .choices({"", "nvlm", "internvl"})
        .only_with(kType, {"MultimodalTokenizer"});
    t.field("force_system_message", &Config::force_system_message,
            "begin each conversation of MultimodalTokenizer with the format's own system message, "
            "which only qwen2p0 and qwen2p5 have; other formats are unchanged")
        .only_with(kType, {"MultimodalTokenizer"});
    t.field("tokenizer_metadata", &Config::tokenizer_metadata,
            "tokenizer_metadata.json of Megatron Core, whose \"library\" names the type of the "
            "tokenizer and whose \"chat_template\" replaces that of the model")
        .value_name("FILE")
        .breaks_resume("its chat template makes samples, its library chooses the tokenizer");
    t.field("tokenizer_hf_no_include_special_tokens",
            &Config::tokenizer_hf_no_include_special_tokens,
            "leave out the tokens that a tokenizer.json adds at the ends of a text, such as bos")
        .only_with(kType, {"HuggingFaceTokenizer", "GPT2BPETokenizer", "BertWordPieceLowerCase",
                           "BertWordPieceCase"});
    t.field("null_tokenizer_eod_id", &Config::null_tokenizer_eod_id,
            "id of NullTokenizer that ends a document; none: the last of --vocab-size")
        .between(0, kMaxSize)
        .breaks_resume("documents end at another id")
        .only_with(kType, {"NullTokenizer"});
    t.field("null_tokenizer_pad_id", &Config::null_tokenizer_pad_id,
            "id of NullTokenizer that fills samples; -1: there is none")
        .between(-1, kMaxSize)
        .breaks_resume("another id fills samples")
        .only_with(kType, {"NullTokenizer"});
    t.following().on_resume("");
    t.field(
         "vocab_size", &Config::vocab_size,
         "size of the vocabulary, for NullTokenizer and TikTokenizer; NullMultimodalTokenizer adds "
         "the end of a document, and BertWordPieceLowerCase and BertWordPieceCase add [BOS] and "
         "[EOS] only where they fit")
        .between(1, kMaxSize);
    t.field("padded_vocab_size", &Config::padded_vocab_size,
            "number of rows of the embedding, at least the size of the vocabulary; none: the size "
            "of the vocabulary")
        .between(1, kMaxSize);
    t.field("make_vocab_size_divisible_by", &Config::make_vocab_size_divisible_by,
            "pad the vocabulary to a multiple of this")
        .between(1, kMaxSize);
  });
}

const FieldTable<CheckpointConfig>& checkpoint_table() {
  using Config = CheckpointConfig;
  return field_table<Config>([](auto& t) {
    t.group("Checkpoints").following().left_out_of_check();
    t.field("save", &Config::save, "folder to save checkpoints to")
        .value_name("DIR")
        .differs_silently()
        .note(kOnlyEvaluates)
        .note({[](const Settings& s) { return s.checkpoint->save.empty(); },
               "without effect: it is empty, so nothing is saved"});
    t.field("save_interval", &Config::save_interval, "number of iterations between checkpoints")
        .between(1, kMaxSize)
        .alias("persistent-save-interval")
        .note(kNothingIsSaved);
    t.field("save_retain_interval", &Config::save_retain_interval,
            "keep only the latest checkpoint and those at multiples of this iteration; none: keep "
            "all")
        .between(1, kMaxSize)
        .note(kNothingIsSaved);
    t.field("async_save", &Config::async_save,
            "write the checkpoints of --save-interval in the background: training stops only while "
            "the state is copied to host memory, which holds one copy of it")
        .differs_silently()
        .note(kNothingIsSaved);
    t.field("non_persistent_save_interval", &Config::non_persistent_save_interval,
            "number of iterations between non-persistent checkpoints, of which only the latest is "
            "kept")
        .between(1, kMaxSize)
        .note(kNothingIsSaved);
    t.field("non_persistent_ckpt_type", &Config::non_persistent_ckpt_type,
            "where to save non-persistent checkpoints; global: on the shared file system; local: "
            "each host keeps the shards of its ranks on a disk of its own, or in memory")
        .choices({"global", "local"});
    t.field("non_persistent_global_ckpt_dir", &Config::non_persistent_global_ckpt_dir,
            "folder of global non-persistent checkpoints; none: non_persistent in --save or --load")
        .value_name("DIR");
    t.field("non_persistent_local_ckpt_dir", &Config::non_persistent_local_ckpt_dir,
            "folder of local non-persistent checkpoints on each host, such as one in /dev/shm")
        .value_name("DIR");
    t.field("replication", &Config::replication,
            "copy the shards of local checkpoints to other hosts, so that a host may be lost");
    t.field("replication_jump", &Config::replication_jump,
            "distance of the ranks that keep copies of each other's shards; none: the number of "
            "ranks of a host")
        .between(1, kMaxSize);
    t.field("replication_factor", &Config::replication_factor,
            "number of ranks that keep a shard of a local checkpoint, with the rank that wrote it")
        .between(2, kMaxSize);
    t.field("load", &Config::load, "folder of checkpoints, or Hugging Face folder, to load from")
        .value_name("DIR")
        .differs_silently()
        .left_out_of_check("--load (weights are drawn)")
        .note({[](const Settings& s) { return s.checkpoint->load.empty(); },
               "without effect: it is empty, so nothing is loaded"});
    t.field("pretrained_checkpoint", &Config::pretrained_checkpoint,
            "folder to load the weights from, as with --finetune, if --load holds no checkpoint")
        .value_name("DIR")
        .differs_silently()
        .left_out_of_check("--pretrained-checkpoint (weights are drawn)");
    t.field("ckpt_step", &Config::ckpt_step, "iteration to load; none: the latest")
        .between(0, kMaxSize)
        .differs_silently();
    t.field("finetune", &Config::finetune, "load only the weights and start at iteration 0");
    t.field("use_checkpoint_args", &Config::use_checkpoint_args,
            "take the architecture from the checkpoint")
        .note(
            "without effect: the architecture always comes from the checkpoint, and flags must "
            "agree with it");
    t.field(
        "exit_on_missing_checkpoint", &Config::exit_on_missing_checkpoint,
        "exit with an error if --load contains no checkpoint, instead of starting from scratch");
    t.field("save_optim", &Config::save_optim, "do not save the optimizer state");
    t.field("save_rng", &Config::save_rng, "do not save the random number generator state")
        .differs_silently();
    t.field("load_optim", &Config::load_optim,
            "do not load the optimizer state and the learning rate schedule");
    t.field("load_rng", &Config::load_rng, "do not load the random number generator state")
        .differs_silently();
    t.field("ckpt_format", &Config::ckpt_format,
            "accepted for compatibility with Megatron-LM's scripts; there is only one format here")
        .choices({"torch", "torch_dist", "torch_dcp", "fsdp_dtensor"})
        .note("without effect: there is only one checkpoint format here");
  });
}

}  // namespace megatron
