// Checks --async-save: the checkpoints are those of blocking saves, one is under way at a time, and
// failures reach the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "training/full_at_first.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The files of a checkpoint by name. The manifest comes without its settings and checksum, which
/// name the flags.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::string& text = files[entry.path().lexically_relative(folder).string()];
    text = bytes_of(entry.path());
    if (entry.path().filename() != kManifestFile) continue;
    Json json = Json::parse(text);
    json.erase("settings");
    json.erase("checksum");
    text = json.dump();
  }
  return files;
}

class BackgroundSaves : public testing::Test {
 protected:
  Trainer set_up_run(const std::string& save, const std::vector<std::string>& more) {
    std::vector<std::string> all{"--save", (root_ / save).string()};
    all.insert(all.end(), more.begin(), more.end());
    return set_up(read_run(small_run::flags(all)), out_);
  }
  std::string run(const std::string& save, const std::vector<std::string>& more) {
    out_.str("");
    Trainer trainer = set_up_run(save, more);
    EXPECT_EQ(train(trainer, out_), 0);
    return out_.str();
  }

  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  std::ostringstream out_;
};

TEST_F(BackgroundSaves, CheckpointsAreThoseOfBlockingSaves) {
  run("blocking", {"--save-interval", "2"});
  const std::string log = run("background", {"--save-interval", "2", "--async-save"});
  for (const char* name : {"iter_0000002", "iter_0000004", "iter_0000006", "iter_0000008"}) {
    EXPECT_EQ(files_of(root_ / "background" / name), files_of(root_ / "blocking" / name)) << name;
    EXPECT_THAT(verify_folder(root_ / "background" / name), IsEmpty());
  }
  EXPECT_EQ(bytes_of(root_ / "background" / kTrackerFile), "8");
  for (const int iteration : {2, 4, 6, 8}) {
    const auto text = "iteration       " + std::to_string(iteration) + " to ";
    const auto begins = log.find("scheduled an async checkpoint save at " + text),
               ends = log.find("successfully saved checkpoint from " + text);
    EXPECT_LT(begins, ends) << log;
    EXPECT_NE(ends, std::string::npos) << log;
  }
}

TEST_F(BackgroundSaves, OldCheckpointsAreRemovedWhenTheNewOneIsComplete) {
  run("save", {"--save-interval", "2", "--save-retain-interval", "4", "--async-save"});
  EXPECT_THAT(committed_iterations(root_ / "save"), ElementsAre(4, 8));
}

TEST_F(BackgroundSaves, FailuresAreWarningsAndTheNextSaveTriesAgain) {
  Trainer trainer = set_up_run("save", {"--save-interval", "2", "--async-save"});
  FullAtFirst disk(2);
  trainer.folders.save.reset();
  trainer.folders.save = std::make_unique<SaveFolder>(root_ / "save", disk);
  testing::internal::CaptureStderr();
  EXPECT_EQ(train(trainer, out_), 0);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("WARNING: saving iteration 2 failed: cannot create"), HasSubstr("ENOSPC"),
            HasSubstr("saving iteration 4 failed"), Not(HasSubstr("saving iteration 6"))));
  EXPECT_THAT(committed_iterations(root_ / "save"), ElementsAre(6, 8));
}

TEST_F(BackgroundSaves, TheLastOneIsTriedAgainAndThenAnError) {
  Trainer trainer = set_up_run("save", {"--save-interval", "8", "--async-save"});
  FullAtFirst disk(100);
  trainer.folders.save.reset();
  trainer.folders.save = std::make_unique<SaveFolder>(root_ / "save", disk);
  testing::internal::CaptureStderr();
  EXPECT_THAT(message_of([&] { train(trainer, out_); }),
              HasSubstr("the last save, of iteration 8, failed (there is no complete checkpoint)"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("saving iteration 8 failed"));
}

}  // namespace
}  // namespace megatron
