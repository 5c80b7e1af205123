// Checks the start of a run: which checkpoint all ranks choose, which folders a run may write to,
// and which warnings it prints before the first step.
#include "megatron/training/saving/check_save_folders.h"

#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/training/resilience/non_finite.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/saving/checkpointing.h"
#include "megatron/training/saving/choose_checkpoint.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

class StartFoldersTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  std::string folder(const std::string& name) const { return (root_ / name).string(); }

  static small_run::Outcome run(Words flags) {
    flags.insert(flags.begin(), {"--lr-warmup-iters", "0"});
    return small_run::run(flags);
  }
  static std::string error_of(const Words& flags) {
    return message_of([&] { run(flags); });
  }
  /// Runs `iterations` iterations and saves to folder(name) every two.
  void train_into(const std::string& name, int iterations) const {
    run({"--save", folder(name), "--save-interval", "2", "--train-iters",
         std::to_string(iterations)});
  }
  std::string tracked(const std::string& name) const {
    return read_file(folder(name) + "/latest_checkpointed_iteration.txt");
  }
};

/// Starts as the documentation shows for self-restarting runs, in a folder that does not exist yet.
TEST_F(StartFoldersTest, FiftyStartsOfFourRanksIntoANewFolder) {
  for (int start = 0; start < 50; ++start) {
    const std::string save = folder(std::to_string(start));
    const auto run = read_run(
        small_run::flags({"--tensor-model-parallel-size", "2", "--save", save, "--load", save,
                          "--train-iters", "1", "--lr-warmup-iters", "0", "--eval-iters", "0"}),
        4);
    run_rank_threads(4, [&](Communicators& communicators) {
      std::ostringstream log;
      const Trainer trainer =
          set_up(run, log, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
      EXPECT_FALSE(trainer.plan.source);
    });
    ASSERT_FALSE(HasFailure()) << "start " << start;
  }
}

/// Rank 0 writes as early as possible and the other ranks are late; they must not read what it
/// wrote.
TEST_F(StartFoldersTest, OnlyRankZeroLooksIntoTheFolder) {
  const std::string load = folder("new");
  run_rank_threads(3, [&](Communicators& communicators) {
    const Mesh mesh({}, 3);
    const Rank rank = make_rank(mesh, communicators, {});
    StartupWarnings warnings;
    std::ostringstream log;
    if (rank.index != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CheckpointConfig config;
    config.load = load;
    if (rank.index != 0)
      fs::create_directories(config.load += "-of-a-follower"),
          std::ofstream(config.load + "/foreign") << "x";
    EXPECT_FALSE(choose_checkpoint(config, rank, warnings, log));
    if (rank.index == 0) fs::create_directories(load), std::ofstream(load + "/.write_test") << "x";
  });
}

/// Returns the error of each of two ranks; the first rank has different flags.
std::vector<std::string> errors_of_two(const RunConfig& first, const RunConfig& second) {
  std::vector<std::string> errors(2, "no error");
  run_rank_threads(2, [&](Communicators& communicators) {
    const auto rank = static_cast<std::size_t>(communicators.rank());
    std::ostringstream log;
    try {
      set_up(rank == 0 ? first : second, log,
             {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    } catch (const UserError& error) {
      errors[rank] = error.what();
    }
  });
  return errors;
}

TEST_F(StartFoldersTest, ARefusalByRankZeroReadsAlikeOnEveryRank) {
  train_into("a", 2);
  const auto start = read_run(small_run::flags({"--save", folder("a")}), 2);
  const auto errors = errors_of_two(start, start);
  EXPECT_THAT(errors[0], testing::StartsWith("--save " + folder("a") + " is in use"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST_F(StartFoldersTest, ATokenizerThatOneRankCannotOpenStopsAllRanks) {
  const auto whole = read_run(small_run::flags({}), 2);
  auto broken = whole;
  broken.options.settings.tokenizer->tokenizer_type = "GPT2BPETokenizer";
  broken.options.settings.tokenizer->vocab_file = folder("vocab.json");
  broken.options.settings.tokenizer->merge_file = folder("merges.txt");
  const auto errors = errors_of_two(broken, whole);
  EXPECT_THAT(errors[0], HasSubstr(folder("merges.txt")));
  EXPECT_EQ(errors[1], "rank 0: " + errors[0]);
}

TEST_F(StartFoldersTest, EveryRankTakesTheCheckpointOfRankZero) {
  train_into("a", 4);
  run_rank_threads(3, [&](Communicators& communicators) {
    const Mesh mesh({}, 3);
    const Rank rank = make_rank(mesh, communicators, {});
    StartupWarnings warnings;
    std::ostringstream log;
    CheckpointConfig config;
    config.load = rank.index == 0 ? folder("a") : folder("elsewhere");
    if (rank.index == 0) config.ckpt_step = 2;
    const auto source = choose_checkpoint(config, rank, warnings, log);
    ASSERT_TRUE(source);
    EXPECT_EQ(source->folder, fs::path(folder("a")) / "iter_0000002");
    EXPECT_EQ(source->iteration, 2);
  });
}

// Hosts with disks of their own may hold different checkpoints under one name.
TEST_F(StartFoldersTest, AnotherCheckpointUnderTheSameNameIsRefused) {
  train_into("a", 2);
  const fs::path chosen = fs::path(folder("a")) / "iter_0000002";
  const CheckpointSource of_rank_0 = open_checkpoint(chosen, CheckpointSource::Kind::megatron);
  require_same_checkpoint(open_checkpoint(chosen, CheckpointSource::Kind::megatron),
                          of_rank_0.identity);
  fs::remove_all(folder("a"));
  run({"--save", folder("a"), "--seed", "7", "--train-iters", "2"});
  const CheckpointSource other = open_checkpoint(chosen, CheckpointSource::Kind::megatron);
  EXPECT_EQ(other.iteration, of_rank_0.iteration);
  try {
    require_same_checkpoint(other, of_rank_0.identity);
    ADD_FAILURE() << "the other checkpoint was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(chosen.string()),
                                    HasSubstr("another checkpoint than rank 0 found there")));
  }
}

TEST_F(StartFoldersTest, ANewRunDoesNotReplaceAnotherOne) {
  train_into("a", 4);
  const std::string metrics = read_file(folder("a") + "/metrics.jsonl");
  EXPECT_THAT(error_of({"--save", folder("a")}),
              AllOf(HasSubstr("--save " + folder("a") + " is in use"),
                    HasSubstr("checkpoints up to iteration 4, which this run does not continue"),
                    HasSubstr("--load " + folder("a") +
                              " to continue from there, or another --save folder"),
                    Not(HasSubstr("restart"))));
  EXPECT_EQ(read_file(folder("a") + "/metrics.jsonl"), metrics);
  EXPECT_EQ(tracked("a"), "4");
  train_into("b", 2);
  EXPECT_THAT(error_of({"--load", folder("b"), "--save", folder("a")}), HasSubstr("is in use"));
  EXPECT_THAT(
      error_of({"--load", folder("b"), "--finetune", "--save", folder("a")}),
      AllOf(HasSubstr("is in use"),
            HasSubstr("--load " + folder("a") + " and without --finetune to continue from there")));
  EXPECT_EQ(error_of({"--load", folder("a"), "--save", folder("a")}), "no error");
  EXPECT_EQ(error_of({"--load", folder("a"), "--finetune", "--save", folder("c")}), "no error");
}

TEST_F(StartFoldersTest, FinetuningDoesNotReplaceWhatItLoads) {
  train_into("a", 4);
  EXPECT_THAT(
      error_of({"--load", folder("a"), "--save", folder("a") + "/.", "--finetune"}),
      AllOf(HasSubstr("is the folder that is loaded from"), HasSubstr("or leave --finetune out")));
}

TEST_F(StartFoldersTest, GoingBackNeedsAnotherFolder) {
  train_into("a", 6);
  EXPECT_THAT(
      error_of({"--load", folder("a"), "--save", folder("a"), "--ckpt-step", "2"}),
      AllOf(HasSubstr("checkpoints up to iteration 6"), HasSubstr("goes back to iteration 2"),
            HasSubstr("give another --save folder")));
  EXPECT_EQ(error_of({"--load", folder("a"), "--save", folder("b"), "--ckpt-step", "2"}),
            "no error");
  EXPECT_THAT(error_of({"--load", folder("a") + "/iter_0000002", "--save", folder("a")}),
              AllOf(HasSubstr("goes back to iteration 2"),
                    HasSubstr("or give --load " + folder("a") + " to continue from the latest"),
                    Not(HasSubstr("--ckpt-step"))));
  EXPECT_EQ(tracked("a"), "6");
  std::ofstream(folder("a") + "/latest_checkpointed_iteration.txt") << "2";
  const auto again = run({"--load", folder("a"), "--save", folder("a")});
  EXPECT_THAT(again.log,
              HasSubstr("names iteration 2: this run continues there and replaces the later ones"));
}

TEST_F(StartFoldersTest, NonPersistentCheckpointsOfAnotherRunStay) {
  const Words fast{"--non-persistent-save-interval",  "3",
                   "--non-persistent-ckpt-type",      "local",
                   "--non-persistent-local-ckpt-dir", folder("fast")};
  const auto with = [&](Words flags) {
    flags.insert(flags.end(), fast.begin(), fast.end());
    return flags;
  };
  EXPECT_EQ(error_of(with({"--save", folder("a")})), "no error");
  EXPECT_THAT(error_of(with({"--save", folder("b")})),
              AllOf(HasSubstr(folder("fast") + ", is in use"), HasSubstr("would remove")));
  EXPECT_EQ(error_of(with({"--save", folder("a"), "--load", folder("a"), "--train-iters", "10"})),
            "no error");
}

TEST_F(StartFoldersTest, ALaterNonPersistentCheckpointStays) {
  const Words local{"--save",
                    folder("a"),
                    "--save-interval",
                    "2",
                    "--non-persistent-save-interval",
                    "3",
                    "--non-persistent-ckpt-type",
                    "local",
                    "--non-persistent-local-ckpt-dir",
                    folder("fast")};
  const auto with = [&](Words flags) {
    flags.insert(flags.end(), local.begin(), local.end());
    return flags;
  };
  EXPECT_EQ(error_of(with({"--train-iters", "3", "--exit-interval", "3"})), "no error");
  // Simulates a kill: the checkpoint at the end of the run is missing.
  fs::remove_all(folder("a") + "/iter_0000003");
  std::ofstream(folder("a") + "/latest_checkpointed_iteration.txt") << "2";
  ASSERT_TRUE(fs::exists(folder("fast") + "/iter_0000003"));
  EXPECT_THAT(error_of(with({"--load", folder("a"), "--ckpt-step", "2"})),
              AllOf(HasSubstr(folder("fast") + ", holds checkpoints up to iteration 3"),
                    HasSubstr("goes back to iteration 2"), HasSubstr("leave --ckpt-step out")));
  EXPECT_TRUE(fs::exists(folder("fast") + "/iter_0000003"));
  EXPECT_EQ(error_of(with({"--load", folder("a")})), "no error");
}

TEST_F(StartFoldersTest, ARestartOfARunThatLoadsFromElsewhereIsAnnounced) {
  train_into("base", 2);
  CheckpointConfig from_base;
  from_base.save = folder("out");
  from_base.load = folder("base");
  CheckpointConfig finetune = from_base, from_nothing = from_base, own = from_base;
  finetune.finetune = true;
  from_nothing.load.clear();
  own.load = own.save;
  const auto said = [](const CheckpointConfig& config, const RestartCounts& restarts) {
    std::ostringstream out;
    StartupWarnings warnings;
    const auto source = config.load.empty() ? std::nullopt : find_checkpoint(config.load);
    try {
      check_save_folders(config, source, restarts, warnings, out);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return out.str();
  };
  EXPECT_THAT(said(finetune, {.max = 2}),
              AllOf(HasSubstr("--load " + folder("base") + " is not the --save folder"),
                    HasSubstr("a restart is refused"),
                    HasSubstr("--load " + folder("out") + " and without --finetune then")));
  EXPECT_THAT(said(from_nothing, {.max = 2}),
              HasSubstr("--load is not given: once " + folder("out")));
  EXPECT_EQ(said(finetune, {}), "");
  EXPECT_EQ(said(finetune, {.count = 2, .max = 2}), "");
  EXPECT_EQ(said(own, {.max = 2}), "");
  train_into("out", 2);
  EXPECT_THAT(said(from_base, {.count = 1, .max = 2}),
              AllOf(HasSubstr("is in use"), HasSubstr("this is restart 1"),
                    HasSubstr("--load of its own --save folder")));
  EXPECT_EQ(said(own, {.count = 1, .max = 2}), "");
}

TEST_F(StartFoldersTest, FinetuningWithoutWeightsIsAMistake) {
  train_into("pretrained", 2);
  EXPECT_THAT(error_of({"--load", folder("pretraind"), "--finetune"}),
              AllOf(HasSubstr("does not exist"), HasSubstr("--finetune"),
                    HasSubstr("looked for latest_checkpointed_iteration.txt"),
                    HasSubstr("did you mean " + folder("pretrained") + "?")));
  fs::create_directories(folder("empty"));
  EXPECT_THAT(error_of({"--load", folder("empty"), "--finetune"}),
              HasSubstr("holds no checkpoint"));
}

TEST_F(StartFoldersTest, WarningsAreRepeatedRightBeforeTraining) {
  const std::string log =
      run({"--load", folder("none"), "--train-iters", "1", "--lr-warmup-iters", "0"}).log;
  const auto start = log.find("[before the start of training step]");
  const auto last = log.rfind("WARNING: could not find the metadata file", start);
  ASSERT_NE(last, std::string::npos);
  EXPECT_LT(log.find("WARNING: could not find the metadata file"), log.find("building GPT model"));
  EXPECT_EQ(log.substr(last, start - last).find("building GPT model"), std::string::npos);

  train_into("a", 2);
  const std::string resumed =
      run({"--load", folder("a"), "--seed", "7", "--no-load-optim", "--no-load-rng"}).log;
  EXPECT_THAT(resumed.substr(resumed.rfind("WARNING: this is no longer the run that was saved")),
              HasSubstr("--seed: 1234 in the checkpoint, 7 now"));
  EXPECT_EQ(resumed.find("rng: true in the checkpoint"), std::string::npos);
  EXPECT_EQ(resumed.find("WARNING: the optimizer starts without state"),
            resumed.rfind("WARNING: the optimizer starts without state"));
}

TEST_F(StartFoldersTest, ARunThatIsOverSaysSo) {
  train_into("a", 4);
  EXPECT_THAT(run({"--load", folder("a"), "--train-iters", "4"}).log,
              HasSubstr("WARNING: the loaded checkpoint is of iteration 4, at the end of training "
                        "at iteration 4 (--train-iters 4): there is nothing "
                        "to train. Give a larger --train-iters"));
  EXPECT_THAT(run({"--load", folder("a"), "--train-iters", "3"}).log,
              HasSubstr("is of iteration 4, after the end of training"));
  EXPECT_THAT(run({"--load", folder("a"), "--train-iters", "5"}).log,
              Not(HasSubstr("nothing to train")));
}

TEST_F(StartFoldersTest, MetricsOfAnotherRunAreKept) {
  run({"--tensorboard-dir", folder("t"), "--train-iters", "3"});
  const std::string first = read_file(folder("t") + "/metrics.jsonl");
  const std::string log = run({"--tensorboard-dir", folder("t"), "--train-iters", "2"}).log;
  EXPECT_EQ(read_file(folder("t") + "/metrics-1.jsonl"), first);
  EXPECT_THAT(log, HasSubstr("all its lines are kept in " + folder("t") + "/metrics-1.jsonl"));
}

TEST_F(StartFoldersTest, FoldersThatVanishCostLinesButNotTheRun) {
  fs::create_directories(folder("p"));
  std::ostringstream out;
  Trainer trainer =
      set_up(read_run(small_run::flags({"--tensorboard-dir", folder("t"), "--prometheus-file",
                                        folder("p") + "/run.prom"})),
             out);
  // The file is removed during the first step, when the reporter has opened its files.
  class Remover : public MicrobatchSource {
   public:
    Remover(std::unique_ptr<MicrobatchSource> source, fs::path root)
        : source_(std::move(source)), root_(std::move(root)) {}
    Microbatch next() override {
      if (++calls_ == 3) fs::remove_all(root_ / "t"), fs::remove_all(root_ / "p");
      return source_->next();
    }

   private:
    std::unique_ptr<MicrobatchSource> source_;
    fs::path root_;
    int calls_ = 0;
  };
  trainer.data.train = std::make_unique<Remover>(std::move(trainer.data.train), root_);
  testing::internal::CaptureStderr();
  EXPECT_EQ(train(trainer, out), 0);
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, AllOf(HasSubstr("metrics.jsonl was deleted"),
                              HasSubstr("training continues without it")));
  const std::string metrics = read_file(folder("t") + "/metrics.jsonl");
  EXPECT_THAT(metrics, AllOf(HasSubstr("\"run\""), HasSubstr("\"iteration\":8"),
                             Not(HasSubstr("\"iteration\":1,"))));
}

TEST_F(StartFoldersTest, TheTableOfDataSaysHowOftenItIsSeen) {
  const auto outcome = run({"--train-iters", "8"});
  EXPECT_THAT(outcome.log, testing::ContainsRegex("train +mock data +1 +[0-9.]+M +32 +[0-9.]+e-0"));
  ASSERT_FALSE(outcome.trainer.data.shares.empty());
  const SplitShare& train = outcome.trainer.data.shares.front();
  EXPECT_EQ(train.corpus.samples, 32);
  EXPECT_DOUBLE_EQ(train.corpus.epochs, 32 * 16.0 / static_cast<double>(train.corpus.tokens));
}

TEST(DataTable, AlignsItsColumns) {
  EXPECT_EQ(
      data_table({{"train",
                   {.name = "books_text_document",
                    .weight = 0.3,
                    .tokens = 12345678,
                    .samples = 10240,
                    .epochs = 0.8312}},
                  {"test", {.name = "b", .weight = 1, .tokens = 999, .samples = 7, .epochs = 12}}}),
      "    data  source               weight  tokens  samples  epochs\n"
      "    train books_text_document     0.3   12.3M   10,240    0.83\n"
      "    test  b                         1     999        7   12.00\n");
}

TEST_F(StartFoldersTest, ACheckpointOfNansIsNamed) {
  train_into("a", 2);
  {
    auto broken = run({"--load", folder("a"), "--train-iters", "2"});
    broken.trainer.state.weights->parameters()[1]->value().view(-1)[0] = std::nan("");
    broken.trainer.state.optimizer->main_parameters().copy_model_params_to_main_params();
    std::ostringstream out;
    SaveFolder save(folder("b"));
    save_training_state(broken.trainer.plan, broken.trainer.state,
                        {save, broken.trainer.timers, "save-checkpoint"}, out);
  }
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags({"--load", folder("b"), "--rerun-mode",
                                                      "disabled", "--lr-warmup-iters", "0"})),
                           out);
  const std::string name = trainer.state.weights->parameters()[1]->name();
  EXPECT_THAT(out.str(),
              HasSubstr("WARNING: " + folder("b") +
                        "/iter_0000002 holds weights that are not finite: " + name + " holds"));
  std::string message;
  try {
    train(trainer, out);
  } catch (const NonFiniteError& error) {
    message = error.what();
  }
  EXPECT_THAT(message,
              AllOf(HasSubstr("cause: " + folder("b") +
                              "/iter_0000002 holds weights that are not finite: " + name),
                    HasSubstr("load a checkpoint from before"), Not(HasSubstr("lower --lr"))));
}

}  // namespace
}  // namespace megatron
