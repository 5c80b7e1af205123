// Checks that a stopped and resumed run equals an uninterrupted one bit for bit: weights, optimizer
// state, progress, losses. Dropout is on, and evaluations lie between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <regex>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;

class ResumeTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const std::filesystem::path root_ = temporary_ / "run";
  std::string folder(const std::string& name) const { return (root_ / name).string(); }
};

std::map<std::string, at::Tensor> tensors(Trainer& trainer) {
  std::map<std::string, at::Tensor> all;
  for (const Parameter* parameter : trainer.state.weights->parameters())
    all[parameter->name()] = parameter->value().clone();
  trainer.state.optimizer->visit_state(
      [&](const ParameterPiece& piece, const std::string& state, at::Tensor& tensor) {
        all[state + "." + piece.parameter->name()] = tensor.clone();
      });
  return all;
}

/// Returns the loss lines of a log without times: iteration and validation lines of iterations past
/// `after`.
std::vector<std::string> losses(const std::string& log, int after) {
  static const std::regex line(
      "iteration +([0-9]+)(?:/| on | \\|).*?(lm loss(?: value)?: [0-9.E+-]+)");
  std::vector<std::string> found;
  for (std::sregex_iterator i(log.begin(), log.end(), line), end; i != end; ++i) {
    if (std::stoi((*i)[1]) > after) found.push_back((*i)[1].str() + " " + (*i)[2].str());
  }
  return found;
}

/// Counts how often a file is opened.
class OpenCount {
 public:
  explicit OpenCount(const std::filesystem::path& path) : events_(::inotify_init1(IN_NONBLOCK)) {
    // Closings lie between: the kernel joins equal events that follow each other.
    EXPECT_GE(::inotify_add_watch(events_, path.c_str(), IN_OPEN | IN_CLOSE), 0) << path;
  }
  OpenCount(const OpenCount&) = delete;
  OpenCount& operator=(const OpenCount&) = delete;
  ~OpenCount() { ::close(events_); }

  int value() const {
    int count = 0;
    for (inotify_event event; ::read(events_, &event, sizeof event) == sizeof event;)
      count += (event.mask & IN_OPEN) != 0 ? 1 : 0;
    return count;
  }

 private:
  int events_;
};

void expect_same(small_run::Outcome& left, small_run::Outcome& right) {
  const auto a = tensors(left.trainer), b = tensors(right.trainer);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
  EXPECT_EQ(left.trainer.state.progress, right.trainer.state.progress);
  EXPECT_EQ(left.trainer.state.optimizer->num_steps(), right.trainer.state.optimizer->num_steps());
}

TEST_F(ResumeTest, StoppedAndResumedEqualsNeverStopped) {
  auto whole = small_run::run({});
  small_run::run({"--save", folder("a"), "--exit-interval", "4"});
  auto resumed = small_run::run({"--load", folder("a")});
  EXPECT_THAT(resumed.log, HasSubstr("at iteration 4"));
  expect_same(whole, resumed);
  EXPECT_EQ(losses(whole.log, 4), losses(resumed.log, 4));
  EXPECT_FALSE(losses(resumed.log, 4).empty());
}

/// A manifest grows with the world, so that every further parse would cost every rank.
TEST_F(ResumeTest, OpensTheManifestOnce) {
  const std::vector<std::string> settings{"--bf16", "--memory-budget", "100GB", "--save",
                                          folder("a")};
  std::vector<std::string> stopped = settings, resumed = settings;
  stopped.insert(stopped.end(), {"--exit-interval", "4"});
  resumed.insert(resumed.end(), {"--load", folder("a")});
  auto saved = small_run::run(stopped);
  const OpenCount opened(root_ / "a/iter_0000004/manifest.json");
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags(resumed)), out);
  EXPECT_EQ(opened.value(), 1);
  EXPECT_THAT(out.str(), HasSubstr("the plan of the checkpoint"));
  EXPECT_EQ(trainer.state.progress.iteration, 4);
  for (const auto& [name, tensor] : tensors(saved.trainer))
    EXPECT_TRUE(tensor.equal(tensors(trainer).at(name))) << name;
}

/// Checkpoints do not keep such settings, so that a resumed run knows them from its flags alone.
TEST_F(ResumeTest, FlagsWithoutEffectAreNotedAtEachStart) {
  const auto expect_notes = [&](std::vector<std::string> words, const auto& notes) {
    const std::string run = folder(words[0].substr(2));
    words.insert(words.end(), {"--save", run, "--load", run, "--exit-interval", "1"});
    const std::string logs[] = {small_run::run(words).log, small_run::run(words).log};
    EXPECT_THAT(logs[1], HasSubstr("at iteration 1"));
    for (const std::string& log : logs) EXPECT_THAT(log, notes);
  };
  expect_notes(
      {"--moe-router-topk", "4", "--moe-shared-expert-intermediate-size", "24",
       "--use-rope-scaling", "--rotary-base", "5e5", "--no-yarn-correction-range-round-to-int"},
      testing::AllOf(HasSubstr("--moe-shared-expert-intermediate-size, --moe-router-topk: "
                               "without effect: there is no --num-experts\n"),
                     HasSubstr("rotary scaling, --rotary-base: without effect: there is "
                               "no --position-embedding-type rope\n"),
                     HasSubstr("--no-yarn-correction-range-round-to-int: without "
                               "effect: there is no YaRN\n")));
  expect_notes({"--num-experts", "4", "--moe-router-num-groups", "2"},
               HasSubstr("--moe-router-num-groups: without effect: there is no "
                         "--moe-router-group-topk\n"));
}

TEST_F(ResumeTest, SgdToo) {
  auto whole = small_run::run({"--optimizer", "sgd"});
  small_run::run({"--optimizer", "sgd", "--save", folder("a"), "--exit-interval", "5"});
  auto resumed = small_run::run({"--optimizer", "sgd", "--load", folder("a")});
  expect_same(whole, resumed);
}

TEST_F(ResumeTest, ProlongedRunStretchesItsSchedule) {
  small_run::run({"--save", folder("a"), "--train-iters", "4"});
  const auto resumed = small_run::run({"--load", folder("a"), "--train-iters", "6"});
  EXPECT_EQ(resumed.trainer.state.progress.iteration, 6);
  EXPECT_THAT(resumed.log, HasSubstr("    --train-iters: 4 in the checkpoint, 6 now: schedules "
                                     "that end with the run stretch"));
}

// Megatron-LM compares the weight decay's duration in samples: 4 iterations of 4, not 6 of 4.
TEST_F(ResumeTest, ARefusedScheduleIsShownAsItWasSaved) {
  const std::vector<std::string> schedule{"--micro-batch-size", "2", "--lr-decay-iters", "4"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.begin(), schedule.begin(), schedule.end());
    return words;
  };
  small_run::run(with({"--global-batch-size", "4", "--save", folder("a"), "--train-iters", "4"}));
  try {
    small_run::run(with({"--global-batch-size", "8", "--load", folder("a"), "--train-iters", "6"}));
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("wd_incr_steps: 48 here, 16 in the checkpoint"));
    EXPECT_THAT(error.what(), HasSubstr("lr_decay_steps: 32 here, 16 in the checkpoint"));
  }
}

TEST_F(ResumeTest, AnotherLearningRateNeedsALeaveToOverride) {
  small_run::run({"--save", folder("a"), "--exit-interval", "4"});
  EXPECT_THROW(small_run::run({"--load", folder("a"), "--lr", "2e-2"}), UserError);
  EXPECT_EQ(
      small_run::run({"--load", folder("a"), "--lr", "2e-2", "--override-opt_param-scheduler"})
          .trainer.state.scheduler.schedule()
          .max_lr,
      2e-2);
  EXPECT_EQ(small_run::run(
                {"--load", folder("a"), "--lr", "2e-2", "--use-checkpoint-opt_param-scheduler"})
                .trainer.state.scheduler.schedule()
                .max_lr,
            1e-2);
}

TEST_F(ResumeTest, FinetuneStartsAtIterationZeroWithoutOptimizer) {
  auto first = small_run::run({"--save", folder("a"), "--train-iters", "3"});
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags({"--load", folder("a"), "--finetune"})), out);
  EXPECT_EQ(trainer.state.progress, TrainingProgress{});
  EXPECT_EQ(trainer.state.optimizer->num_steps(), 0);
  EXPECT_TRUE(trainer.state.weights->parameters()[0]->value().equal(
      first.trainer.state.weights->parameters()[0]->value()));
}

TEST_F(ResumeTest, WithoutOptimizerTheIterationStays) {
  small_run::run({"--save", folder("a"), "--train-iters", "3", "--no-save-optim"});
  std::ostringstream out;
  const Trainer trainer =
      set_up(read_run(small_run::flags({"--load", folder("a"), "--no-load-optim"})), out);
  EXPECT_EQ(trainer.state.progress.iteration, 3);
  EXPECT_EQ(trainer.state.optimizer->num_steps(), 0);
  EXPECT_THROW(small_run::run({"--load", folder("a")}), UserError);
}

TEST_F(ResumeTest, MissingCheckpointWarnsAndStartsFromScratch) {
  const auto outcome = small_run::run({"--load", folder("nothing"), "--train-iters", "3"});
  EXPECT_THAT(outcome.log, HasSubstr("WARNING: could not find the metadata file"));
  EXPECT_EQ(outcome.trainer.state.progress.iteration, 3);
  EXPECT_THROW(small_run::run({"--load", folder("nothing"), "--exit-on-missing-checkpoint"}),
               UserError);
}

TEST_F(ResumeTest, FinishedRunTrainsNoFurther) {
  small_run::run({"--save", folder("a"), "--train-iters", "3"});
  const auto again = small_run::run({"--load", folder("a"), "--train-iters", "3"});
  EXPECT_EQ(again.trainer.state.progress.iteration, 3);
  EXPECT_THAT(again.log, Not(HasSubstr("consumed samples")));
}

}  // namespace
}  // namespace megatron
