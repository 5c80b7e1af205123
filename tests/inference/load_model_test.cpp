// Checks what generate and score load from a checkpoint: the model, its tokenizer, and the tokens
// that end a text.
#include "megatron/inference/load_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/scorer.h"
#include "megatron/parallel/rank.h"
#include "support/gpt_model.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LoadModel : public testing::Test {
 protected:
  LoadModel() {
    settings_.model->num_layers = 1;
    settings_.model->hidden_size = 16;
    settings_.model->num_attention_heads = 2;
    settings_.model->max_position_embeddings = 8;
    settings_.model->vocab_size = 300;
    resolve(*settings_.model);
  }

  void save(std::uint64_t seed = 3, std::int64_t iteration = 5) {
    weights_.reset();  // before its parameters
    model_ = make_gpt_model(*settings_.model, Rank{});
    weights_ = std::make_unique<ParamStore>(declared_parameters(*model_),
                                            ParamStore::Options{.with_gradients = false});
    weights_->initialize(seed);
    save_checkpoint(root_, {.model = &*settings_.model,
                            .settings = &settings_,
                            .weights = weights_.get(),
                            .progress = {.iteration = iteration}});
  }

  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  Settings settings_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ParamStore> weights_;
};

TEST_F(LoadModel, RunsAsTheModelThatWasSaved) {
  save();
  const LoadedModel loaded = load_model(root_, std::nullopt);
  const std::vector<std::int64_t> ids = {1, 2, 299, 4};
  EXPECT_EQ(score_tokens(loaded.runner, ids, "ids").logprobs,
            score_tokens(*model_, ids, "ids").logprobs);
}

TEST_F(LoadModel, WeightsOfAnotherCheckpointReplaceItsOwn) {
  save();
  save(/*seed=*/4, /*iteration=*/6);
  const std::vector<std::int64_t> ids = {1, 2, 299, 4};
  const std::vector<double> expected = score_tokens(*model_, ids, "ids").logprobs;
  for (const bool packs : {false, true}) {
    LoadedModel loaded = load_model(root_, 5, {.packs_weights = packs});
    EXPECT_NE(score_tokens(loaded.runner, ids, "ids").logprobs, expected);
    reload_weights(loaded, root_, 6);
    EXPECT_EQ(score_tokens(loaded.runner, ids, "ids").logprobs, expected);
    EXPECT_THROW(reload_weights(loaded, root_, 7), UserError);
  }
}

TEST_F(LoadModel, MissingCheckpointsAreUserErrors) {
  EXPECT_THAT(message_of([&] { load_model(root_ / "none", std::nullopt); }), HasSubstr("--load"));
  EXPECT_THAT(message_of([&] { load_model(root_, std::nullopt); }), HasSubstr("no checkpoint"));
  write_file(root_ / "other", "");
  for (const fs::path& folder : {root_, root_ / "none", root_ / "other"})
    EXPECT_THAT(
        message_of([&] { load_model(folder, std::nullopt, {.flag = "--speculative-model"}); }),
        HasSubstr("--speculative-model " + folder.string()));
  fs::remove(root_ / "other");
  save();
  EXPECT_THROW(load_model(root_, 4), UserError);
}

TEST_F(LoadModel, TheTokenizerOfTheRunServes) {
  settings_.tokenizer->tokenizer_type = "NullTokenizer";
  settings_.tokenizer->vocab_size = 200;
  save();
  const LoadedTokenizer stored = load_tokenizer({}, load_model(root_, std::nullopt).source);
  EXPECT_EQ(stored.tokenizer->name(), "NullTokenizer");
  EXPECT_THAT(stored.stop_token_ids, ElementsAre(199));
}

/// The end token of a tokenizer that has more ids than the model is never said.
TEST_F(LoadModel, EndTokensAreOfTheModel) {
  settings_.tokenizer->tokenizer_type = "NullTokenizer";
  settings_.tokenizer->vocab_size = 400;
  save();
  EXPECT_TRUE(load_tokenizer({}, load_model(root_, std::nullopt).source).stop_token_ids.empty());
}

TEST_F(LoadModel, FlagsNameAnotherTokenizer) {
  settings_.tokenizer->tokenizer_type = "NullTokenizer";
  settings_.tokenizer->vocab_size = 200;
  save();
  TokenizerConfig flags;
  flags.tokenizer_type = "ByteTokenizer";
  const LoadedTokenizer stored = load_tokenizer({flags}, load_model(root_, std::nullopt).source);
  EXPECT_EQ(stored.tokenizer->name(), "ByteTokenizer");
  EXPECT_THAT(stored.stop_token_ids, ElementsAre(256));
}

TEST_F(LoadModel, FlagsThatNameNoTokenizerChangeTheCheckpoints) {
  settings_.tokenizer->tokenizer_type = "NullTokenizer";
  settings_.tokenizer->vocab_size = 200;
  settings_.tokenizer->null_tokenizer_pad_id = 7;
  save();
  const CheckpointSource source = load_model(root_, std::nullopt).source;
  TokenizerFlags flags;
  EXPECT_EQ(load_tokenizer(flags, source).tokenizer->pad(), 7);
  flags.given = {"null_tokenizer_pad_id"};
  EXPECT_EQ(load_tokenizer(flags, source).tokenizer->pad(), -1) << "its default was given";
  flags.config.chat_template = "other.jinja";
  EXPECT_EQ(load_tokenizer(flags, source).config.chat_template, "other.jinja");
  flags.config.null_tokenizer_eod_id = 3;
  EXPECT_THAT(load_tokenizer(flags, source).stop_token_ids, ElementsAre(3));
  flags.config.force_system_message = true;
  EXPECT_THAT(load_tokenizer(flags, source).notes,
              ElementsAre("--force-system-message: without effect with the checkpoint's "
                          "NullTokenizer"));
}

TEST_F(LoadModel, WithoutATokenizerTheFlagsAreNamed) {
  save();
  const CheckpointSource source = load_model(root_, std::nullopt).source;
  EXPECT_THAT(message_of([&] { load_tokenizer({}, source); }), HasSubstr("--tokenizer-type"));
}

/// Writes a folder with the tokenizer files that Hugging Face writes.
CheckpointSource hugging_face_folder(const fs::path& folder, const std::string& generation_config) {
  write_file_atomically(folder / "tokenizer.json",
                        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<end>": 3},
                    "merges": ["a b"]},
          "added_tokens": [{"id": 3, "content": "<end>", "single_word": false, "lstrip": false,
                            "rstrip": false, "normalized": false, "special": true}]})");
  CheckpointSource source{.kind = CheckpointSource::Kind::hugging_face,
                          .folder = folder,
                          .model = {},
                          .given_training_fields = {},
                          .notes = {},
                          .auxiliary_files = {}};
  source.tokenizer = stored_tokenizer(folder);
  source.model.vocab_size = 4;
  if (!generation_config.empty())
    source.auxiliary_files["generation_config.json"] = generation_config;
  return source;
}

TEST_F(LoadModel, ADecoderBeginsAsItsFolderOrTrainingSays) {
  CheckpointSource source = hugging_face_folder(root_, R"({"decoder_start_token_id": 1})");
  EXPECT_EQ(load_tokenizer({}, source).decoder_start, -1) << "there is no encoder";
  source.model.decoder_num_layers = 2;
  EXPECT_EQ(load_tokenizer({}, source).decoder_start, 1);
  source.auxiliary_files = {{"generation_config.json", R"({"decoder_start_token_id": null})"},
                            {"config.json", R"({"decoder_start_token_id": 2, "x": Infinity})"}};
  EXPECT_EQ(load_tokenizer({}, source).decoder_start, 2);
  TokenizerFlags flags;
  flags.config.tokenizer_type = "NullTokenizer";
  flags.config.vocab_size = 9;
  flags.config.null_tokenizer_pad_id = 7;
  source.auxiliary_files.clear();
  EXPECT_EQ(load_tokenizer(flags, source).decoder_start, 7);
  EXPECT_EQ(load_tokenizer(flags, source).encoder_end, -1);
  flags.config.null_tokenizer_pad_id = -1;
  EXPECT_THAT(message_of([&] { load_tokenizer(flags, source); }),
              HasSubstr("neither [BOS] nor padding for the decoder to begin with"));
}

TEST(LoadedTokenizer, EndsWhatAnEncoderReadsOnce) {
  LoadedTokenizer tokenizer;
  std::vector<std::int64_t> ids{4, 5};
  tokenizer.end_encoded(ids);
  EXPECT_THAT(ids, ElementsAre(4, 5)) << "its file says so, or there is no encoder";
  tokenizer.encoder_end = 1;
  for (int i = 0; i < 2; ++i) tokenizer.end_encoded(ids);
  EXPECT_THAT(ids, ElementsAre(4, 5, 1));
}

TEST_F(LoadModel, AHuggingFaceFolderBringsItsTokenizerAndItsEnds) {
  const LoadedTokenizer one =
      load_tokenizer({}, hugging_face_folder(root_, R"({"eos_token_id": 3})"));
  EXPECT_THAT(one.tokenizer->encode("ab"), ElementsAre(2));
  EXPECT_THAT(one.stop_token_ids, testing::Contains(3));
  const LoadedTokenizer several =
      load_tokenizer({}, hugging_face_folder(root_, R"({"eos_token_id": [1, 3]})"));
  EXPECT_THAT(several.stop_token_ids, testing::IsSupersetOf({1, 3}));
  EXPECT_NO_THROW(load_tokenizer({}, hugging_face_folder(root_, R"({"eos_token_id": null})")));
  EXPECT_NO_THROW(load_tokenizer({}, hugging_face_folder(root_, "")));
  CheckpointSource bare = hugging_face_folder(root_, "");
  bare.auxiliary_files["config.json"] = R"({"eos_token_id": 2})";
  EXPECT_THAT(load_tokenizer({}, bare).stop_token_ids, testing::Contains(2));
}

TEST_F(LoadModel, TheCheckpointSaysWhetherSpecialTokensAreIncluded) {
  write_file_atomically(root_ / "tokenizer.json",
                        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<end>": 3},
                    "merges": ["a b"]},
          "added_tokens": [{"id": 3, "content": "<end>", "single_word": false, "lstrip": false,
                            "rstrip": false, "normalized": false, "special": true}],
          "post_processor": {"type": "TemplateProcessing", "pair": [],
              "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}},
                         {"Sequence": {"id": "A", "type_id": 0}}],
              "special_tokens": {"<end>": {"id": "<end>", "ids": [3], "tokens": ["<end>"]}}}})");
  CheckpointSource source{.kind = CheckpointSource::Kind::megatron,
                          .folder = root_,
                          .model = {},
                          .given_training_fields = {},
                          .notes = {},
                          .auxiliary_files = {}};
  source.model.vocab_size = 4;
  source.tokenizer = stored_tokenizer(root_);
  source.tokenizer.tokenizer_hf_no_include_special_tokens = true;
  EXPECT_THAT(load_tokenizer({}, source).tokenizer->encode("ab"), ElementsAre(2));
  TokenizerFlags other_value{.config = {}, .given = {"tokenizer_hf_no_include_special_tokens"}};
  EXPECT_THAT(load_tokenizer(other_value, source).tokenizer->encode("ab"), ElementsAre(3, 2));
  TokenizerFlags own_tokenizer;
  own_tokenizer.config.tokenizer_model = (root_ / "tokenizer.json").string();
  EXPECT_THAT(load_tokenizer(own_tokenizer, source).tokenizer->encode("ab"), ElementsAre(3, 2))
      << "a tokenizer of the flags has nothing of the checkpoint's";
  TokenizerFlags of_ids;
  of_ids.config.null_tokenizer_eod_id = 3;
  of_ids.given = {"null_tokenizer_eod_id"};
  EXPECT_THAT(message_of([&] { load_tokenizer(of_ids, source); }),
              HasSubstr("the tokenizer of " + root_.string() +
                        ": --null-tokenizer-eod-id has an effect only with NullTokenizer: the "
                        "tokenizer is a HuggingFaceTokenizer"));
  TokenizerConfig bare_ids;
  bare_ids.tokenizer_type = "NullTokenizer";
  bare_ids.vocab_size = 4;
  EXPECT_THAT(load_tokenizer({bare_ids}, source).notes, testing::IsEmpty());
}

TEST_F(LoadModel, ByteTokenizerEndsTextsWithItsOwnIdAlone) {
  CheckpointSource source = hugging_face_folder(root_, R"({"eos_token_id": 3})");
  source.tokenizer = {};
  source.tokenizer.tokenizer_type = "ByteTokenizer";
  source.model.vocab_size = 257;
  EXPECT_THAT(load_tokenizer({}, source).stop_token_ids, ElementsAre(256));
}

TEST_F(LoadModel, AForeignTokenizerIsNoticed) {
  CheckpointSource source = hugging_face_folder(root_, "");
  const auto notes = [&](const TokenizerConfig& flags) {
    return load_tokenizer({flags}, source).notes;
  };
  TokenizerConfig flags;
  flags.tokenizer_model = (root_ / "tokenizer.json").string();
  EXPECT_THAT(notes(flags), testing::IsEmpty());  // it is the same file
  std::string text = read_file(root_ / "tokenizer.json");
  write_file_atomically(
      root_ / "other.json",
      text.replace(text.find("\"ab\": 2"), 7, "\"ba\": 2").replace(text.find("a b\"]"), 3, "b a"));
  flags.tokenizer_model = (root_ / "other.json").string();
  EXPECT_THAT(notes(flags),
              ElementsAre(HasSubstr("other.json is not the tokenizer of these weights")));
  source.tokenizer = {};
  // The original tokenizer is unknown, and the sizes agree.
  EXPECT_THAT(notes(flags), testing::IsEmpty());
  source.model.vocab_size = 9;
  EXPECT_THAT(notes(flags),
              ElementsAre(HasSubstr("the tokenizer has 4 ids, the model's vocabulary 9")));
  source.model.vocab_size = 3;
  EXPECT_THAT(notes(flags),
              ElementsAre(HasSubstr("the tokenizer has 4 ids, the model's vocabulary 3")));
}

TEST_F(LoadModel, BrokenEndsNameFileAndField) {
  for (const char* broken : {R"({"eos_token_id": "x"})", R"({"eos_token_id": [1.5]})", "{", "[]"}) {
    const std::string message =
        message_of([&] { load_tokenizer({}, hugging_face_folder(root_, broken)); });
    EXPECT_THAT(message, HasSubstr("generation_config.json")) << broken;
  }
}

}  // namespace
}  // namespace megatron
