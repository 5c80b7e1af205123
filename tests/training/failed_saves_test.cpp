// Checks failed saves: training continues after a failed save at an interval, and the last save
// decides the exit code. Also checks folders that cannot be saved to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <vector>

#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/parallel/rank_threads.h"
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

class FailedSaves : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  std::string save_ = (root_ / "save").string();

  Trainer set_up_run(const std::vector<std::string>& more) {
    std::vector<std::string> all{"--save", save_};
    all.insert(all.end(), more.begin(), more.end());
    return set_up(read_run(small_run::flags(all)), out_);
  }

  std::ostringstream out_;
};

TEST_F(FailedSaves, TrainingGoesOnAfterThoseAtIntervals) {
  Trainer trainer = set_up_run({"--save-interval", "2"});
  FullAtFirst disk(2);
  trainer.folders.save.reset();
  trainer.folders.save = std::make_unique<SaveFolder>(save_, disk);
  testing::internal::CaptureStderr();
  EXPECT_EQ(train(trainer, out_), 0);
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_THAT(errors, AllOf(HasSubstr("WARNING: saving iteration 2 failed: cannot create"),
                            HasSubstr("weights_00000.safetensors"), HasSubstr("ENOSPC"),
                            HasSubstr("saving iteration 4 failed"), HasSubstr("training continues"),
                            Not(HasSubstr("saving iteration 6"))));
  EXPECT_THAT(committed_iterations(save_), ElementsAre(6, 8));
  EXPECT_THAT(verify_folder(root_ / "save/iter_0000006"), IsEmpty());
}

TEST_F(FailedSaves, TheLastOneIsAnErrorThatNamesWhatThereIs) {
  Trainer trainer = set_up_run({"--save-interval", "4"});
  FullAtFirst disk(100);
  trainer.folders.save.reset();
  trainer.folders.save = std::make_unique<SaveFolder>(save_, disk);
  testing::internal::CaptureStderr();
  EXPECT_THAT(
      message_of([&] { train(trainer, out_); }),
      AllOf(HasSubstr("the last save, of iteration 8, failed (there is no complete checkpoint)"),
            HasSubstr("ENOSPC"), HasSubstr("free space")));
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(out_.str(), HasSubstr("iteration        8/       8"));
}

TEST_F(FailedSaves, AFolderThatVanishesIsMadeAgain) {
  Trainer trainer = set_up_run({"--train-iters", "4", "--save-interval", "2"});
  fs::remove_all(save_);
  testing::internal::CaptureStderr();
  EXPECT_EQ(train(trainer, out_), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("was deleted during the run"));
  EXPECT_THAT(committed_iterations(save_), ElementsAre(2, 4));
}

TEST_F(FailedSaves, ABrokenTrackerIsReplaced) {
  Trainer trainer =
      set_up_run({"--train-iters", "4", "--save-interval", "2", "--save-retain-interval", "4"});
  std::ofstream(save_ + "/" + kTrackerFile) << "broken";
  EXPECT_EQ(train(trainer, out_), 0);
  EXPECT_THAT(committed_iterations(save_), ElementsAre(4));
  EXPECT_EQ(read_tracker(save_)->iteration, 4);
}

// Only the rank that leads the folder sees that another run has made and locked it meanwhile.
TEST_F(FailedSaves, AFolderThatAnotherRunHasTakenFailsOnEveryRank) {
  const RunConfig config = read_run(
      small_run::flags({"--save", save_, "--train-iters", "4", "--save-interval", "2"}), 2);
  std::vector<std::string> errors(2, "no error");
  std::optional<FolderLock> other;
  testing::internal::CaptureStderr();
  const auto body = [&](Communicators& communicators) {
    const auto rank = static_cast<std::size_t>(communicators.rank());
    std::ostringstream log;
    Trainer trainer =
        set_up(config, log, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    if (rank == 0) {
      fs::remove_all(save_);
      fs::create_directory(save_);
      other.emplace(save_);
    }
    errors[rank] = message_of([&] { train(trainer, log); });
  };
  run_rank_threads(2, body, {.timeout = std::chrono::seconds(20)});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("saving iteration 2 failed: another run writes into " + save_));
  EXPECT_THAT(errors[0], HasSubstr("the last save, of iteration 4, failed"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0: another run writes into " + save_));
}

TEST_F(FailedSaves, ASecondRunIsToldWhoHoldsTheFolder) {
  const Trainer first = set_up_run({});
  EXPECT_THAT(message_of([&] { set_up_run({}); }),
              AllOf(HasSubstr("another run writes into " + save_),
                    HasSubstr("process " + std::to_string(getpid()) + " on host ")));
}

TEST_F(FailedSaves, FoldersThatCannotBeWrittenAreRefusedBeforeTraining) {
  std::ofstream(root_ / "file") << "x";
  save_ = (root_ / "file").string();
  EXPECT_THAT(message_of([&] { set_up_run({}); }),
              AllOf(HasSubstr("--save " + save_), HasSubstr("is a file")));
  save_ = (root_ / "file/below").string();
  EXPECT_THAT(message_of([&] { set_up_run({}); }),
              AllOf(HasSubstr((root_ / "file").string()), HasSubstr("EEXIST")));
  save_ = "/proc/megatron";
  EXPECT_THAT(message_of([&] { set_up_run({}); }),
              AllOf(HasSubstr("cannot create folder /proc/megatron"), HasSubstr("fix: ")));
}

}  // namespace
}  // namespace megatron
