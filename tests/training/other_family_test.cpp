// A family that a program adds to the library's: its checkpoints name it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/checkpoint/checkpoint_source.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;

TEST(OtherFamily, LoadsInAnotherOnlyToFinetune) {
  ModelFamilies families;
  ModelFamily copy = find_model_family("gpt");
  copy.name = "copy";
  families.add(copy);
  const auto start = [&families](const char* model, const std::vector<std::string>& flags) {
    RunConfig run = read_run(small_run::flags(flags), 1, families.names());
    run.options.model = model;
    std::ostringstream out;
    Trainer trainer = set_up(run, out, {.families = &families});
    train(trainer, out);
    return out.str();
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

}  // namespace
}  // namespace megatron
