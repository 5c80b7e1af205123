// Runs with --dataloader-type external take their samples from the program that links the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "megatron/config/data_config.h"
#include "support/message_of.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

/// Returns the training loss after each step, as the log prints it.
std::string losses(const std::string& log) {
  std::istringstream lines(log);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t loss = line.find("lm loss: ");
    if (loss != std::string::npos && line.find(" iteration ") != std::string::npos)
      found += line.substr(loss, line.find('|', loss) - loss) + "\n";
  }
  return found;
}

TEST(ExternalData, TrainsOnTheSamplesOfTheProgram) {
  const small_run::Outcome plain = small_run::run({});
  int calls = 0;
  std::ostringstream out;
  Trainer trainer =
      set_up(read_run(small_run::flags({"--dataloader-type", "external"})), out,
             {.datasets = [&](const DataConfig& config, const DatasetRequest& request) {
               ++calls;
               return build_datasets(config, request);
             }});
  EXPECT_EQ(train(trainer, out), 0);
  EXPECT_EQ(calls, 1);
  EXPECT_NE(losses(plain.log), "");
  EXPECT_EQ(losses(out.str()), losses(plain.log));
}

TEST(ExternalData, NeedsAProgramThatGivesSamples) {
  std::ostringstream out;
  EXPECT_THAT(message_of([&] {
                set_up(read_run(small_run::flags({"--dataloader-type", "external"})), out);
              }),
              HasSubstr("--dataloader-type external takes the samples of a program"));
  EXPECT_THAT(message_of([&] {
                set_up(read_run(small_run::flags({})), out, {.datasets = build_datasets});
              }),
              HasSubstr("this program gives samples of its own: --dataloader-type is single"));
}

}  // namespace
}  // namespace megatron
