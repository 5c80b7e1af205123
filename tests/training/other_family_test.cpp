// Runs that begin with the checkpoint of another family: one that a program adds to the library's,
// and one that divides the same blocks into other layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "megatron/checkpoint/checkpoint_source.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;

std::string log_of(const char* model, const std::vector<std::string>& flags,
                   const ModelFamilies& families = library_families()) {
  RunConfig run = read_run(small_run::flags(flags), 1, families.names());
  run.options.model = model;
  std::ostringstream out;
  Trainer trainer = set_up(run, out, {.families = &families});
  train(trainer, out);
  return out.str();
}

TEST(OtherFamily, LoadsInAnotherOnlyToFinetune) {
  ModelFamilies families;
  ModelFamily copy = find_model_family("gpt");
  copy.name = "copy";
  families.add(copy);
  const auto start = [&families](const char* model, const std::vector<std::string>& flags) {
    return log_of(model, flags, families);
  };
  const TemporaryFolder folder;
  const std::string root = (folder / "run").string();
  start("copy", {"--save", root, "--exit-interval", "2"});
  EXPECT_EQ(find_checkpoint(root)->family, "copy");
  EXPECT_THAT(message_of([&] {
                start("gpt", {"--load", root});
              }),
              HasSubstr(": holds a model of the family copy: this run trains a model of the family "
                        "gpt\n"));
  EXPECT_THAT(start("gpt", {"--load", root, "--finetune"}), HasSubstr("successfully loaded"));
  EXPECT_THAT(message_of([&] { find_model_family("copy"); }), HasSubstr("one of gpt"));
}

TEST(OtherFamily, PairsOfOneBlockLayersComputeWhatAGptsLayersDo) {
  const TemporaryFolder folder;
  const auto first_loss = [](const char* model, const std::string& root) {
    const std::string log = log_of(model, {"--load", root, "--finetune", "--exit-interval", "1",
                                           "--hidden-dropout", "0", "--attention-dropout", "0"});
    const std::string name = "lm loss: ";
    return std::stod(log.substr(log.find(name) + name.size()));
  };
  const std::string gpt = (folder / "gpt").string(), hybrid = (folder / "hybrid").string();
  log_of("gpt", {"--save", gpt, "--exit-interval", "2"});
  EXPECT_NEAR(first_loss("hybrid", gpt), first_loss("gpt", gpt), 1e-5);
  log_of("hybrid", {"--load", gpt, "--finetune", "--save", hybrid, "--exit-interval", "2"});
  EXPECT_EQ(find_checkpoint(hybrid)->model.hybrid_layer_pattern, "*-*-");
  EXPECT_NEAR(first_loss("gpt", hybrid), first_loss("hybrid", hybrid), 1e-5);
}

}  // namespace
}  // namespace megatron
