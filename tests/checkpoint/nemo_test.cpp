// Folders of NeMo 2, made of a checkpoint in Megatron-LM's format: the same pieces under NeMo's
// names, the state of Lightning's trainer and the settings as NeMo writes them. The parity test has
// megatron-core write one.
#include "megatron/checkpoint/megatron_lm/nemo.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/convert.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/formats/dcp_metadata.h"
#include "megatron/formats/dcp_writer.h"
#include "megatron/formats/pickle_writer.h"
#include "megatron/models/architecture.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

/// tiny_llama() as NeMo's serializer writes it: sorted keys, defaults, Python objects as maps, and
/// a list of objects that no setting is.
const std::string kModelYaml = R"(_target_: nemo.collections.llm.gpt.model.llama.LlamaModel
config:
  _target_: nemo.collections.llm.gpt.model.llama.LlamaConfig
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  add_bias_linear: false
  add_qkv_bias: false
  attention_dropout: 0.0
  bf16: true
  ffn_hidden_size: 24
  gated_linear_unit: true
  hidden_dropout: 0.0
  hidden_size: 16
  init_method: null
  kv_channels: 4
  layernorm_epsilon: 1.0e-05
  layernorm_zero_centered_gamma: false
  make_vocab_size_divisible_by: 128
  normalization: RMSNorm
  num_attention_heads: 4
  num_layers: 2
  num_moe_experts: null
  num_query_groups: 2
  params_dtype: &id001
    _call_: true
    _target_: torch.dtype
  pipeline_dtype: *id001
  position_embedding_type: rope
  rotary_base: 10000
  rotary_percent: 1.0
  seq_len_interpolation_factor: null
  seq_length: 32
  share_embeddings_and_output_weights: false
model_transform: null
optim:
  _target_: nemo.lightning.pytorch.optim.megatron.MegatronOptimizerModule
  config:
    _target_: megatron.core.optimizer.optimizer_config.OptimizerConfig
    bf16: false
    lr: 0.0003
    optimizer: adam
    weight_decay: 0.1
  lr_mult: 1.0
  scale_lr_cond: [{_target_: a.b}]
tokenizer:
  _target_: nemo.collections.common.tokenizers.huggingface.auto_tokenizer.AutoTokenizer
  pretrained_model_name: nemo_tokenizer
)";

/// Returns the text with one part replaced, which it has.
std::string with(std::string text, const std::string& part, const std::string& other) {
  EXPECT_THAT(text, HasSubstr(part));
  return text.replace(text.find(part), part.size(), other);
}

/// Returns the name that NeMo gives a tensor of Megatron-LM.
std::string nemo_name(const std::string& name) {
  for (const std::string state :
       {"optimizer.state.exp_avg_sq.", "optimizer.state.exp_avg.", "optimizer.state.param.", ""})
    if (name.starts_with(state)) return state + "module." + name.substr(state.size());
  return name;
}

/// A run and its checkpoint as a folder of NeMo.
class Nemo : public ::testing::Test {
 protected:
  void SetUp() override {
    save_checkpoint(root_ / "run", run_.request(5));
    convert_checkpoint({.load = root_ / "run", .save = root_ / "theirs", .format = "torch_dist"});
    const fs::path from = root_ / "theirs/iter_0000005";
    fs::create_directories(folder_ / "weights");
    fs::create_directories(folder_ / "context/nemo_tokenizer");
    const DcpMetadata index = read_dcp_metadata(from);
    DcpWriter writer(folder_ / "weights");
    for (const auto& [name, tensor] : index.tensors) {
      // Each piece is a part of a tensor of layers; DcpWriter takes them one by one.
      for (const DcpPiece& piece : tensor.pieces) {
        const std::string bytes = read_file(from / piece.file);
        const auto all = std::as_bytes(std::span(bytes));
        const ByteRange range = read_dcp_tensor(all, tensor, piece, name).bytes();
        DcpTensor part = tensor;
        part.pieces = {{.offsets = piece.offsets, .sizes = piece.sizes}};
        writer.write(nemo_name(name), part, all.subspan(range.begin, range.end - range.begin));
      }
    }
    writer.close();
    fs::copy_file(from / "metadata.json", folder_ / "weights/metadata.json");
    const Json groups = Json::array({{{"step", 4}, {"lr", 0.1}}});
    const Json optimizer = {{"param_state_sharding_type", "fully_sharded_model_space"},
                            {"optimizer", {{"param_groups", groups}}}};
    write_state({{"global_step", 5},
                 {"epoch", 0},
                 {"pytorch-lightning_version", "2.5.0"},
                 {"state_dict", Json::object()},
                 {"optimizer", Json::array({optimizer})},
                 {"PreTrainingDataModule", {{"consumed_samples", 40}}}});
    write_file(folder_ / "context/model.yaml", kModelYaml);
    write_file(folder_ / "context/nemo_tokenizer/tokenizer.json", "{}");
  }

  void write_state(const Json& state) const {
    fs::remove(folder_ / "weights/common.pt");
    FileWriter file(folder_ / "weights/common.pt");
    write_torch_file(file, state);
    file.close(/*sync=*/false);
  }
  /// Expects that model.yaml with one part replaced is refused with these words.
  void expect_refused(const std::string& part, const std::string& other,
                      const std::vector<std::string>& words) const {
    write_file(folder_ / "context/model.yaml", with(kModelYaml, part, other));
    expect_user_error([&] { find_checkpoint(folder_); }, words, other);
  }

  const TemporaryFolder root_;
  const fs::path folder_ = root_ / "nemo";
  const TinyRun run_{1};
};

TEST_F(Nemo, GivesWeightsStatesAndProgress) {
  const CheckpointSource ours = *find_checkpoint(root_ / "run");
  for (const fs::path& given : {folder_, folder_ / "weights", folder_ / "weights/"}) {
    const CheckpointSource theirs = *find_checkpoint(given);
    EXPECT_EQ(theirs.folder, folder_ / "weights");
    EXPECT_TRUE(forward_differences(theirs.model, *run_.settings.model).empty());
    EXPECT_EQ(theirs.iteration, 5);
    EXPECT_FALSE(theirs.is_release);
    EXPECT_EQ(theirs.manifest->progress.consumed_train_samples, 40);
    EXPECT_EQ(theirs.manifest->progress.scheduler_num_steps, 40);
    ASSERT_TRUE(theirs.manifest->optimizer);
    EXPECT_EQ(theirs.manifest->optimizer->name, "adam");
    EXPECT_EQ(theirs.manifest->optimizer->num_steps, 4);
    ManifestReader from(ours.folder, ours.manifest), to(theirs.folder, theirs.manifest);
    for (const auto& [name, tensor] : ours.manifest->tensors) {
      ASSERT_TRUE(theirs.manifest->tensors.contains(name)) << name;
      at::Tensor a = at::empty(tensor.shape), b = at::empty(tensor.shape);
      from.copy_slice(name, whole_slice(tensor.shape), a);
      to.copy_slice(name, whole_slice(tensor.shape), b);
      EXPECT_TRUE(a.equal(b)) << name;
    }
  }
}

TEST_F(Nemo, NamesItsTokenizer) {
  const std::string tokenizer = (folder_ / "context/nemo_tokenizer").string();
  EXPECT_EQ(find_checkpoint(folder_)->tokenizer.tokenizer_model, tokenizer);
  const std::string text = inspection_text(inspect_checkpoint(folder_));
  EXPECT_THAT(text, HasSubstr("is a checkpoint of NeMo 2, with the tokenizer " + tokenizer));
  fs::remove_all(tokenizer);
  write_file(folder_ / "context/tokenizer.model", "");
  EXPECT_EQ(find_checkpoint(folder_)->tokenizer.tokenizer_model, (folder_ / "context").string());
  fs::remove(folder_ / "context/tokenizer.model");
  EXPECT_THAT(find_checkpoint(folder_)->notes.front(), HasSubstr("without a tokenizer"));
}

TEST_F(Nemo, IsAReleaseBeforeTheFirstStep) {
  write_state({{"global_step", 0}, {"pytorch-lightning_version", "2.5.0"}});
  const CheckpointSource source = *find_checkpoint(folder_);
  EXPECT_TRUE(source.is_release);
  EXPECT_EQ(source.manifest->progress.consumed_train_samples, 0);
}

TEST_F(Nemo, IsFoundWhereASaveCouldReplaceIt) {
  EXPECT_EQ(find_foreign_checkpoint(root_.path()), folder_ / "weights");
  EXPECT_EQ(find_foreign_checkpoint(folder_), folder_ / "weights");
}

TEST_F(Nemo, ReadsNamesThatAreNotOurs) {
  const auto model = [&](const std::string& part, const std::string& other) {
    write_file(folder_ / "context/model.yaml", with(kModelYaml, part, other));
    return find_checkpoint(folder_)->model;
  };
  const std::string silu = "torch.nn.functional.silu", length = "  seq_length: 32\n";
  EXPECT_EQ(model(silu, "torch._C._nn.gelu").activation, Activation::gelu);
  EXPECT_EQ(model(silu, "megatron.core.activations.squared_relu").activation,
            Activation::squared_relu);
  EXPECT_EQ(model(silu, "nemo.collections.llm.fn.activation.openai_gelu").activation,
            Activation::gelu_tanh);
  EXPECT_EQ(model(silu, "torch._C._nn.gelu\n    approximate: tanh").activation,
            Activation::gelu_tanh);
  const TransformerConfig llama31 =
      model(length, length +
                        "  scale_factor: 32\n  low_freq_factor: 2\n  high_freq_factor: 5\n"
                        "  old_context_len: 4096\n");
  EXPECT_EQ(llama31.rope_scaling_type, RopeScaling::llama3);
  EXPECT_EQ(llama31.rope_scaling_factor, 32);
  EXPECT_EQ(llama31.rope_low_freq_factor, 2);
  EXPECT_EQ(llama31.rope_high_freq_factor, 5);
  EXPECT_EQ(llama31.rope_original_max_position_embeddings, 4096);
  EXPECT_EQ(model("seq_len_interpolation_factor: null", "seq_len_interpolation_factor: 2.0")
                .rope_scaling_type,
            RopeScaling::linear);
  EXPECT_EQ(model(length, length + "  window_size: [7, 0]\n").window_size, (std::array{7L, 0L}));
  EXPECT_EQ(model("gpt.model.llama.LlamaConfig", "gpt.model.base.GPTConfig").num_layers, 2);
  EXPECT_EQ(model("nemo.collections.llm.gpt.model.llama.LlamaConfig", "mine.Config").num_layers, 2);
}

TEST_F(Nemo, RefusesWhatItDoesNotRead) {
  expect_refused("llama.LlamaModel", "gemma.GemmaModel",
                 {"model.yaml: nemo.collections.llm.gpt.model.gemma.GemmaModel", "export_ckpt"});
  expect_refused("llama.LlamaConfig", "ssm.SSMConfig", {"model.yaml: config: ", "ssm.SSMConfig"});
  expect_refused("nemo.collections.llm.gpt.model.llama.LlamaModel", "nemo.collections.vlm.M",
                 {"nemo.collections.vlm.M"});
  expect_refused("torch.nn.functional.silu", "torch.nn.functional.mish", {"model.yaml", "mish"});
  expect_refused("num_layers: 2", "num_layers: 1", {"decoder.layers.1"});
  expect_refused("config:\n", "config: [\n", {"not valid YAML"});
  expect_refused("config:\n", "other:\n", {"model.yaml: config.num_layers is missing"});
  fs::remove(folder_ / "context/model.yaml");
  expect_user_error([&] { find_checkpoint(folder_); }, {"model.yaml is missing", "io.json"});
  write_file(folder_ / "weights/metadata.json",
             R"({"sharded_backend": "zarr", "sharded_backend_version": 1})");
  expect_user_error([&] { find_checkpoint(folder_); }, {"'zarr'", "save_ckpt_format"});
}

TEST_F(Nemo, RefusesWeightsWithoutTheirContext) {
  fs::remove_all(folder_ / "context");
  expect_user_error([&] { find_checkpoint(folder_ / "weights"); },
                    {"nemo/context/model.yaml is missing", "copy the whole folder"});
}

TEST(Nemo1, IsRefusedByName) {
  const TemporaryFolder root;
  write_file(root / "llama.nemo", "an archive");
  fs::create_directories(root / "unpacked/model_weights");
  write_file(root / "unpacked/model_config.yaml", "mcore_gpt: true\n");
  fs::create_directories(root / "ranks/mp_rank_00");
  write_file(root / "ranks/mp_rank_00/model_weights.ckpt", "weights");
  write_file(root / "ranks/model_config.yaml", "mcore_gpt: true\n");
  for (const char* name : {"llama.nemo", "unpacked", "ranks"})
    expect_user_error([&] { find_checkpoint(root / name); },
                      {"--load ", name, "NeMo 1", "convert_nemo1_to_nemo2.py", "tar -xf"});
}

TEST(Nemo1, NeedsWeightsBesideItsSettings) {
  const TemporaryFolder root;
  write_file(root / "model_config.yaml", "any: settings\n");
  EXPECT_EQ(message_of([&] { refuse_nemo_1(root.path(), "--load "); }), "no error");
}

TEST(NemoNames, LoseTheModule) {
  EXPECT_EQ(without_module("module.decoder.a"), "decoder.a");
  EXPECT_EQ(without_module("optimizer.state.exp_avg.module.module.a.weight"),
            "optimizer.state.exp_avg.a.weight");
  EXPECT_EQ(without_module("submodule.a"), "submodule.a");
}

}  // namespace
}  // namespace megatron
