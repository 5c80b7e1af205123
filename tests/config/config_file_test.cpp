// Settings from --config files and the environment: their precedence, and what is wrong with them.
#include "megatron/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/mistake_of.h"
#include "megatron/base/files.h"
#include "megatron/config/data_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Args = std::vector<std::string>;

class ConfigFile : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name :
         {"MEGATRON_LR", "MEGATRON_NUM_LAYERS", "MEGATRON_CONFIG", "MEGATRON_HIDEN_SIZE",
          "MEGATRON_DATA_PATH", "MEGATRON_CODE_DIR", "MEGATRON_BATCH_SIZE"})
      ::unsetenv(name);
  }
  std::string write(const std::string& name, const std::string& text) {
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(ConfigFile, PrecedenceIsDefaultFileEnvironmentFlag) {
  const std::string path = write("run.yaml", "num_layers: 3\nlr: 0.5\nhidden_size: 128\nseed: 7\n");
  ::setenv("MEGATRON_NUM_LAYERS", "5", 1);
  ::setenv("MEGATRON_LR", "0.25", 1);
  const Args words{"gpt", "--config", path, "--lr", "0.125", "--print-config"};
  const auto found = read_run(words);
  EXPECT_EQ(found.options.settings.model->hidden_size, 128);
  EXPECT_EQ(found.options.settings.model->num_layers, 5);
  EXPECT_EQ(found.options.settings.scheduler->lr, 0.125);
  EXPECT_EQ(found.parsed.origin("seed").where, path + ":4: seed");
  EXPECT_EQ(found.parsed.origin("num_layers").where, "MEGATRON_NUM_LAYERS");
  EXPECT_EQ(found.parsed.origin("lr").where, "--lr");
}

TEST_F(ConfigFile, ReadsSectionsListsAndSwitches) {
  const std::string yaml =
      write("a.yaml",
            "model:\n  num-layers: 3\n  window_size: [7, 0]\nlearning_rate:\n  lr: 1e-4\ndata:\n  "
            "data_path: [0.5, a, 0.5, b]\n"
            "layers:\n  disable_bias_linear: true\nswiglu: yes\neval_interval: null\n");
  const std::string toml =
      write("b.toml",
            "seed = 9\nhidden_dropout = 0.0\n[data]\nsplit = \"9,1,0\"\nno_mmap_bin_files = "
            "true\niterations_to_skip = [3, 4]\n");
  const Settings s =
      read_run(Args{"--config", yaml, "--config", toml, "--print-config"}).options.settings;
  EXPECT_EQ(s.model->num_layers, 3);
  EXPECT_EQ(s.model->window_size, (IntegerPair{7, 0}));
  EXPECT_EQ(s.scheduler->lr, 1e-4);
  EXPECT_THAT(s.data->data_path, ElementsAre("0.5", "a", "0.5", "b"));
  EXPECT_FALSE(s.model->add_bias_linear);
  EXPECT_EQ(s.model->activation, Activation::silu);
  EXPECT_EQ(s.training->seed, 9);
  EXPECT_EQ(s.model->hidden_dropout, 0);
  EXPECT_FALSE(s.data->mmap_bin_files);
  EXPECT_THAT(s.training->iterations_to_skip, ElementsAre(3, 4));
}

TEST_F(ConfigFile, ReadsTheSectionsOfMegatronsFiles) {
  const std::string yaml =
      write("gpt.yaml",
            "language_model:\n  num_layers: 3\n  hidden_dropout: 0.0\n  init_method: null\n"
            "  masked_softmax_fusion: True\n  fp8_margin: 0\n  moe_token_dropping: False\n"
            "  heterogeneous_block_specs: False\n  inference_sampling_seed: 42\n"
            "model_parallel:\n  bf16: True\n  grad_scale_func: null\n"
            "  gradient_accumulation_fusion: True\n"
            "  moe_extended_tp: False\n  _cpu_offloading_context: null\n"
            "use_legacy_models: False\nspec: null\nlr: 2.5e-4\nadam_eps: 1.e-08\n"
            "no_load_rng: null\nrampup_batch_size: [32, 32, 65_324_160]\n");
  const Settings s = read_run(Args{"--yaml-cfg", yaml, "--print-config"}).options.settings;
  EXPECT_EQ(s.model->num_layers, 3);
  EXPECT_EQ(s.model->hidden_dropout, 0);
  EXPECT_TRUE(s.training->bf16);
  EXPECT_EQ(s.scheduler->lr, 2.5e-4);
  EXPECT_THAT(s.training->rampup_batch_size, ElementsAre(32, 32, 65324160));
  EXPECT_THAT(mistake_of(Args{"--print-config", "--yaml-cfg",
                              write("bad.yaml", "language_model:\n  initial_method: xavier\n")}),
              HasSubstr("bad.yaml:2: initial_method: unknown key"));
  EXPECT_THAT(mistake_of(Args{"--print-config", "--yaml-cfg",
                              write("typo.yaml", "language_model:\n  gated_linar_unit: False\n")}),
              HasSubstr("typo.yaml:2: gated_linar_unit: unknown key"));
}

TEST_F(ConfigFile, NullGivesWayToTheOtherNameOfASetting) {
  for (const char* text :
       {"num_layers: 2\nencoder_num_layers: null\nencoder_seq_length: null\nseq_length: 64\n",
        "encoder_num_layers: null\nnum_layers: 2\nseq_length: 64\nencoder_seq_length: null\n",
        "num_layers: 2\nnum_layers: 2\nseq_length: 64\nretriever_seq_length: 256\n"}) {
    const Settings s =
        read_run(Args{"--yaml-cfg", write("a.yaml", text), "--print-config"}).options.settings;
    EXPECT_EQ(s.model->num_layers, 2) << text;
    EXPECT_EQ(s.training->seq_length, 64) << text;
  }
  EXPECT_THAT(mistake_of(Args{"--print-config", "--yaml-cfg",
                              write("b.yaml", "num_layers: 2\nencoder_num_layers: 3\n")}),
              HasSubstr("b.yaml:2: encoder_num_layers: was given before, in line 1"));
}

TEST_F(ConfigFile, NotesAreOnWhatTheFileTurnsOn) {
  const auto notes = [&](const std::string& text) {
    const std::string path = write("a.yaml",
                                   "num_layers: 2\nhidden_size: 32\nseq_length: 8\n"
                                   "num_attention_heads: 4\nmicro_batch_size: 1\n"
                                   "train_iters: 1\nlr: 1\nmock_data: true\n"
                                   "tokenizer_type: NullTokenizer\nvocab_size: 9\n" +
                                       text);
    return notes_text(read_run(Args{"gpt", "--yaml-cfg", path}).parsed.notes);
  };
  EXPECT_EQ(notes("model_parallel:\n  sequence_parallel: false\n  tp_comm_overlap: false\n"
                  "  overlap_p2p_comm: true\n"),
            "");
  EXPECT_EQ(notes("model_parallel:\n  overlap_p2p_comm: false\n"),
            "accepted without effect:\n  " + (folder_ / "a.yaml").string() +
                ":12: overlap_p2p_comm: with --pipeline-model-parallel-size 1\n");
  EXPECT_THAT(notes("sequence_parallel: true\n"),
              HasSubstr("a.yaml:11: sequence_parallel: is turned off"));
}

TEST_F(ConfigFile, TheEnvironmentNamesFilesListsAndTypos) {
  ::setenv("MEGATRON_CONFIG", write("a.yaml", "num_layers: 6\n").c_str(), 1);
  ::setenv("MEGATRON_DATA_PATH", "1 a 2 b", 1);
  ::setenv("MEGATRON_CODE_DIR", "/src", 1);
  const auto found = read_run(Args{"--print-config"});
  EXPECT_EQ(found.options.settings.model->num_layers, 6);
  EXPECT_THAT(found.options.settings.data->data_path, ElementsAre("1", "a", "2", "b"));
  EXPECT_THAT(notes_text(found.parsed.notes),
              HasSubstr("note: MEGATRON_CODE_DIR: names no setting"));
  ::setenv("MEGATRON_HIDEN_SIZE", "4", 1);
  EXPECT_THAT(mistake_of(Args{"--print-config"}),
              AllOf(HasSubstr("MEGATRON_HIDEN_SIZE: names no setting"),
                    HasSubstr("did you mean MEGATRON_HIDDEN_SIZE?")));
}

TEST_F(ConfigFile, OlderNamesAreNotedWhereverTheyStand) {
  const std::string path = write("old.yaml", "batch_size: 2\n");
  EXPECT_THAT(
      notes_text(read_run(Args{"--print-config", "--config", path}).parsed.notes),
      HasSubstr("note: " + path + ":1: batch_size: is an older name of --micro-batch-size"));
  ::setenv("MEGATRON_BATCH_SIZE", "2", 1);
  EXPECT_THAT(notes_text(read_run(Args{"--print-config"}).parsed.notes),
              HasSubstr("note: MEGATRON_BATCH_SIZE: is an older name of --micro-batch-size"));
}

// The settings of other programs: sections within sections, lists of objects, and aliases, which
// may make a section part of itself.
TEST(NestedYaml, NamesSectionsByTheirPath) {
  const auto entries = parse_nested_yaml(
      "kind: model\nconfig:\n  layers: 2\n  type: &type {name: bf16}\n  other: *type\n"
      "  window: [7, 0]\n  calls: [{name: a}]\n  none: null\n",
      "f");
  std::vector<std::string> texts;
  for (const FileEntry& entry : entries) {
    texts.push_back(entry.section + ":" + entry.key);
    for (const std::string& value : entry.values) texts.back() += " " + value;
  }
  EXPECT_THAT(texts, ElementsAre(":kind model", "config:layers 2", "config.type:name bf16",
                                 "config.other:name bf16", "config:window 7 0", "config:none"));
  EXPECT_TRUE(entries.back().is_null);
}

TEST(NestedYaml, EndsWhereAliasesDoNot) {
  const auto repeated = [](const std::string& section) {
    std::string text = "a0: &a0 " + section + "\n";
    for (int i = 1; i < 40; ++i) {
      const std::string before = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
      text += name + ": &" + name + " {x: " + before + ", y: " + before + "}\n";
    }
    return text;
  };
  for (const std::string& text :
       {std::string("a: &a\n  b: *a\n"), repeated("{x: 1, y: 2}"), repeated("{}")})
    EXPECT_THAT(message_of([&] { parse_nested_yaml(text, "f"); }), HasSubstr("without end"));
}

TEST_F(ConfigFile, BrokenFilesNameFileAndLine) {
  struct Case {
    std::string name, text, expected;
  };
  const std::vector<Case> table = {
      {"empty.yaml", "", "empty.yaml: the file holds no settings"},
      {"comment.yaml", "# nothing\n", "the file holds no settings"},
      {"scalar.yaml", "just words", "scalar.yaml:1: expected keys with values"},
      {"list.yaml", "- a\n- b\n", "list.yaml:1: expected keys with values"},
      {"unknown.yaml", "lr: 1\nnum_layer: 3\n",
       "unknown.yaml:2: num_layer: unknown key\n  fix: did you mean num_layers?"},
      {"section.yaml", "modle:\n  num_layers: 3\n",
       "section modle: unknown section\n  fix: did you mean model?"},
      {"deep.yaml", "model:\n  inner:\n    num_layers: 3\n",
       "deep.yaml:2: 'inner' contains a section within a section"},
      {"nested.yaml", "data_path: [[a]]\n", "must be a list of plain values"},
      {"twice.yaml", "lr: 1\nmodel:\n  lr: 2\n", "twice.yaml:3: lr: was given before, in line 1"},
      {"type.yaml", "lr: fast\n", "type.yaml:1: lr: must be a number, got 'fast'"},
      {"range.yaml", "num_layers: -1\n", "range.yaml:1: num_layers: must be at least 1, got -1"},
      {"many.yaml", "num_layers: [1, 2]\n", "num_layers: takes one value, got 2"},
      {"switch.yaml", "disable_bias_linear: maybe\n", "must be true or false, got 'maybe'"},
      {"open.yaml", "data_path: [a, b\n", "not valid YAML"},
      {"quote.yaml", "split: \"9,1\n", "not valid YAML"},
      {"quotes.yaml", "data_path: ['it''s', 'b\n", "not valid YAML"},
      {"tab.yaml", "model:\n\tnum_layers: 3\n", "not valid YAML"},
      {"two.yaml", "lr: 1\n---\nlr: 2\n", "a second document"},
      {"alias.yaml", "lr: *unknown\n", "not valid YAML"},
      {"self.yaml", "data_path: &a [*a]\n", "self.yaml"},
      {"key.yaml", "[a, b]: 3\n", "a key must be a word"},
      {"binary.yaml", std::string("\x00\x01\xff\xfe", 4), "binary.yaml"},
      {"empty.toml", "", "the file holds no settings"},
      {"broken.toml", "lr = \n", "broken.toml:1: not valid TOML"},
      {"twice.toml", "lr = 1\nlr = 2\n", "twice.toml:2: not valid TOML"},
      {"date.toml", "lr = 2020-01-01\n", "'lr' must be text, a number"},
      {"unknown.toml", "[model]\nnum_layer = 3\n", "unknown.toml:2: num_layer: unknown key"},
      {"deep.toml", "[model.inner]\nx = 3\n", "section within a section"},
      {"kind.txt", "lr: 1\n", "has an unknown extension"},
      {"refused.yaml", "enable_msc: true\n", "refused.yaml:1: enable_msc: is not in this version"},
  };
  for (const Case& c : table) {
    EXPECT_THAT(mistake_of(Args{"--print-config", "--config", write(c.name, c.text)}),
                HasSubstr(c.expected))
        << c.name;
  }
  EXPECT_THAT(mistake_of(Args{"--print-config", "--config", "/no/such.yaml"}),
              HasSubstr("/no/such.yaml"));
  EXPECT_THAT(mistake_of(Args{"--print-config", "--config", folder_.string() + "/"}),
              HasSubstr("unknown extension"));
  EXPECT_NE(mistake_of(Args{"--print-config", "--config",
                            write("brackets.yaml", "a: " + std::string(100000, '['))}),
            "no error");
}

}  // namespace
}  // namespace megatron
