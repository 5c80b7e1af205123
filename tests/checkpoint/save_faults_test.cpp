// Lets every call of a save fail in every way. Either the previous checkpoint loads bit for bit, or
// the new one is complete; silent changes are reported. The model is tiny; its save makes a few
// hundred calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <sstream>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/fault_injection_file_system.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/stale_temporaries.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

struct Scenario {
  const char* name;
  std::int64_t before, after;  ///< iterations of the existing checkpoint and of the saved one
  bool can_exchange = true;
};

/// Returns a folder in memory if there is one, because the tests make thousands of saves.
fs::path quick_folder() {
  return fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
}

TransformerConfig one_layer() {
  TransformerConfig model = tiny_llama();
  model.num_layers = 1;
  return model;
}

constexpr Scenario kNewIteration{"a new iteration", 4, 5},
    kSameIteration{"the same iteration", 5, 5},
    kWithoutExchange{"the same iteration, no exchange of names", 5, 5, false};

class SaveFaults : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    before_ = std::make_unique<TinyRun>(1, one_layer());
    after_ = std::make_unique<TinyRun>(2, one_layer());
    scratch_ = std::make_unique<TinyRun>(3, one_layer());
  }
  static void TearDownTestSuite() {
    before_.reset();
    after_.reset();
    scratch_.reset();
  }

  /// Creates a folder with a checkpoint and leftovers of an earlier crash.
  void prepare(const Scenario& scenario) {
    fs::remove_all(root_);
    FaultInjectionFileSystem quick({});
    save(*before_, scenario.before, quick);
    fs::create_directories(root_ / "iter_0000003.tmp-elsewhere-17");
    std::ofstream(root_ / "iter_0000003.tmp-elsewhere-17/weights_00000.safetensors") << "part";
  }

  void save(const TinyRun& run, std::int64_t iteration, FileSystem& files) {
    SaveRequest request = run.request(iteration);
    request.settings = nullptr;
    request.files = &files;
    request.tokenizer = &tokenizer_;
    save_checkpoint(root_, request);
  }

  /// Returns the calls of a save that succeeds.
  std::vector<FaultInjectionFileSystem::Call> calls_of(const Scenario& scenario) {
    prepare(scenario);
    FaultInjectionFileSystem files({.can_exchange = scenario.can_exchange});
    save(*after_, scenario.after, files);
    return files.calls();
  }

  /// Saves through `files`. Returns the error message, or nullopt when no UserError was thrown.
  std::optional<std::string> try_save(const Scenario& scenario, FileSystem& files) {
    try {
      save(*after_, scenario.after, files);
    } catch (const UserError& error) {
      return error.what();
    } catch (const Killed&) {  // expected: the save ends there
    }
    return std::nullopt;
  }

  void load(std::optional<std::int64_t> step = std::nullopt) {
    const auto source = find_checkpoint(root_, step);
    ASSERT_TRUE(source) << "no checkpoint";
    load_weights(*source, *scratch_->store);
    load_optimizer(*source, *scratch_->optimizer);
    EXPECT_EQ(source->auxiliary_files, tokenizer_);
  }

  static bool scratch_equals(const TinyRun& run) {
    const auto a = scratch_->tensors(), b = run.tensors();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!a[i].equal(b[i])) return false;
    }
    return scratch_->optimizer->num_steps() == run.optimizer->num_steps();
  }

  void expect_one_whole_checkpoint(const Scenario& scenario) {
    ASSERT_NO_THROW(load());
    EXPECT_TRUE(scratch_equals(*before_) || scratch_equals(*after_))
        << "neither the old nor the new content";
    std::ostringstream out;
    EXPECT_NO_THROW(verify_checkpoints(root_, true, out));
    if (scenario.before == scenario.after) return;
    ASSERT_NO_THROW(load(scenario.before));
    EXPECT_TRUE(scratch_equals(*before_)) << "the earlier checkpoint changed";
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(root_)) all.push_back(entry.path().filename());
    return all;
  }

  /// Expects that the next save on a sound disk succeeds and removes all leftovers.
  void expect_recovery() {
    FaultInjectionFileSystem sound({});
    ASSERT_NO_THROW(save(*after_, 6, sound));
    ASSERT_NO_THROW(load());
    EXPECT_TRUE(scratch_equals(*after_));
    for (const std::string& name : names()) EXPECT_FALSE(is_temporary_name(name)) << name;
  }

  /// For each call of a save, lets this call fail and runs `check` after the save.
  void at_every_call(const Scenario& scenario, Fault fault,
                     const std::function<void(const std::optional<std::string>& said)>& check,
                     std::uint64_t loss_seed = 0) {
    const auto calls = calls_of(scenario);
    ASSERT_GT(calls.size(), 40u);
    for (std::size_t at = 0; at < calls.size() && !HasFailure(); ++at) {
      SCOPED_TRACE(std::string(scenario.name) + ", call " + std::to_string(at) + " of " +
                   std::to_string(calls.size()) + ": " + calls[at].name + " " +
                   calls[at].path.string());
      prepare(scenario);
      FaultInjectionFileSystem files({.fault = fault,
                                      .at = at,
                                      .can_exchange = scenario.can_exchange,
                                      .loss_seed = loss_seed == 0 ? 0 : loss_seed + at});
      check(try_save(scenario, files));
    }
  }

  const TemporaryFolder folder_{quick_folder()};
  fs::path root_ = folder_ / "save";
  const AuxiliaryFiles tokenizer_{{"tokenizer.json", "{}"}, {"tokenizer_config.json", "{ }"}};
  static std::unique_ptr<TinyRun> before_, after_, scratch_;
};

std::unique_ptr<TinyRun> SaveFaults::before_, SaveFaults::after_, SaveFaults::scratch_;

class StoppedSaves : public SaveFaults,
                     public testing::WithParamInterface<std::tuple<Scenario, Fault>> {};

TEST_P(StoppedSaves, LeaveOneWholeCheckpointAndTheNextSaveRecovers) {
  const auto& [scenario, fault] = GetParam();
  at_every_call(scenario, fault, [&, scenario = scenario](const auto& said) {
    EXPECT_EQ(said, std::nullopt);
    expect_one_whole_checkpoint(scenario);
    expect_recovery();
  });
}

INSTANTIATE_TEST_SUITE_P(AtEveryCall, StoppedSaves,
                         testing::Combine(testing::Values(kNewIteration, kSameIteration,
                                                          kWithoutExchange),
                                          testing::Values(Fault::kill, Fault::power_loss)));

class PowerLosses : public SaveFaults,
                    public testing::WithParamInterface<std::tuple<Scenario, std::uint64_t>> {};

TEST_P(PowerLosses, OfSomeOfWhatIsUnflushedLeaveOneWholeCheckpoint) {
  const auto& [scenario, seed] = GetParam();
  at_every_call(
      scenario, Fault::power_loss,
      [&, scenario = scenario](const auto& said) {
        EXPECT_EQ(said, std::nullopt);
        expect_one_whole_checkpoint(scenario);
        expect_recovery();
      },
      seed);
}

INSTANTIATE_TEST_SUITE_P(AtEveryCall, PowerLosses,
                         testing::Combine(testing::Values(kNewIteration, kSameIteration,
                                                          kWithoutExchange),
                                          testing::Values(1000, 2000, 3000, 4000)));

/// Which of `count` unflushed changes a power loss takes.
std::vector<std::function<bool(std::size_t)>> subsets(std::size_t count) {
  std::vector<std::function<bool(std::size_t)>> all{[](std::size_t) { return true; }};
  for (std::size_t one = 0; one < count; ++one) {
    all.push_back([one](std::size_t i) { return i == one; });
    all.push_back([one](std::size_t i) { return i != one; });
  }
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    all.push_back([coin = std::mt19937_64(seed)](std::size_t) mutable { return coin() % 2 == 0; });
  return all;
}

class ReturnedSaves : public SaveFaults, public testing::WithParamInterface<Scenario> {
 protected:
  /// The power fails right after a save, in every way: what was saved is there.
  void expect_durable(const Scenario& scenario, const std::function<void()>& prepare_folder) {
    std::size_t num_ways = 1;
    for (std::size_t way = 0; way < num_ways && !HasFailure(); ++way) {
      SCOPED_TRACE("way " + std::to_string(way));
      prepare_folder();
      FaultInjectionFileSystem files({.can_exchange = scenario.can_exchange});
      save(*after_, scenario.after, files);
      const auto ways = subsets(files.num_unflushed());
      num_ways = ways.size();
      files.lose_power(ways.at(way));
      ASSERT_NO_THROW(load());
      EXPECT_TRUE(scratch_equals(*after_)) << "what was saved is gone";
      EXPECT_EQ(read_tracker(root_)->iteration, scenario.after);
      expect_one_whole_checkpoint(scenario);
      expect_recovery();
    }
  }
};

TEST_P(ReturnedSaves, SurviveAPowerLoss) {
  expect_durable(GetParam(), [&] { prepare(GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(Scenarios, ReturnedSaves,
                         testing::Values(kNewIteration, kSameIteration, kWithoutExchange));

TEST_F(ReturnedSaves, SurviveAPowerLossInAFolderThatTheyMade) {
  root_ = folder_ / "made/by/the/save";
  expect_durable({"the first iteration", 5, 5}, [&] { fs::remove_all(folder_ / "made"); });
}

TEST_F(ReturnedSaves, ARemovedFolderIsGoneOrWholeAfterAPowerLoss) {
  std::size_t num_ways = 1;
  for (std::size_t way = 0; way < num_ways && !HasFailure(); ++way) {
    const fs::path folder = folder_ / std::to_string(way) / "iter_0000004";
    fs::create_directories(folder);
    for (const char* name : {"a", "b"}) std::ofstream(folder / name) << name;
    FaultInjectionFileSystem files({});
    remove_folder_atomically(folder, files);
    const auto ways = subsets(files.num_unflushed());
    num_ways = ways.size();
    files.lose_power(ways.at(way));
    EXPECT_FALSE(fs::exists(folder) && !(fs::exists(folder / "a") && fs::exists(folder / "b")));
  }
}

struct ErrorCase {
  Fault fault;
  const char* errno_name;
  bool leaves_parts;  ///< the disk does not allow the removal of partial files
};

class FailedSaves : public SaveFaults,
                    public testing::WithParamInterface<std::tuple<Scenario, ErrorCase>> {};

TEST_P(FailedSaves, NameFileAndErrnoAndLoseNothing) {
  const auto& [scenario, error] = GetParam();
  int failures = 0;
  at_every_call(
      scenario, error.fault,
      [&, scenario = scenario, error = error](const std::optional<std::string>& said) {
        if (said) {
          ++failures;
          EXPECT_THAT(*said, HasSubstr(root_.string()));
          EXPECT_THAT(*said,
                      AnyOf(HasSubstr(error.errno_name), HasSubstr("not enough free space")));
        }
        expect_one_whole_checkpoint(scenario);
        if (!said) {
          ASSERT_NO_THROW(load());
          EXPECT_TRUE(scratch_equals(*after_)) << "said to have succeeded";
        } else if (!error.leaves_parts &&
                   scenario.before != scenario.after) {  // a replaced folder stays when its
                                                         // successor may not be durable
          for (const std::string& name : names())
            EXPECT_FALSE(is_temporary_name(name) && !name.starts_with("iter_0000003")) << name;
        }
        expect_recovery();
      });
  EXPECT_GT(failures, 30);
}

INSTANTIATE_TEST_SUITE_P(
    AtEveryCall, FailedSaves,
    testing::Combine(testing::Values(kNewIteration, kSameIteration),
                     testing::Values(ErrorCase{Fault::no_space, "ENOSPC", false},
                                     ErrorCase{Fault::full_disk, "ENOSPC", false},
                                     ErrorCase{Fault::quota, "EDQUOT", false},
                                     ErrorCase{Fault::io_error, "EIO", false},
                                     ErrorCase{Fault::dead_disk, "EIO", true})));

TEST_F(SaveFaults, AnObjectionBeforeTheCommitKeepsTheOldCheckpoint) {
  prepare(kNewIteration);
  SaveRequest request = after_->request(kNewIteration.after);
  request.settings = nullptr;
  request.tokenizer = &tokenizer_;
  bool are_pieces_written = false;
  request.before_commit = [&] {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root_))
      are_pieces_written |= entry.path().filename().string().starts_with("weights") &&
                            entry.path().parent_path().filename() != "iter_0000004";
    throw HardwareError("replicas differ");
  };
  EXPECT_THROW(save_checkpoint(root_, request), HardwareError);
  EXPECT_TRUE(are_pieces_written);
  EXPECT_FALSE(fs::exists(root_ / "iter_0000005"));
  load();
  EXPECT_TRUE(scratch_equals(*before_));
}

TEST_F(SaveFaults, ShortAndInterruptedWritesAreGoneOnWith) {
  for (const Fault fault : {Fault::short_write, Fault::interruption}) {
    at_every_call(kNewIteration, fault, [&](const auto& said) {
      EXPECT_EQ(said, std::nullopt);
      ASSERT_NO_THROW(load());
      EXPECT_TRUE(scratch_equals(*after_));
    });
  }
}

/// Returns the text of the UserError that `action` throws; nullopt when it succeeds.
std::optional<std::string> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return std::nullopt;
}

class SilentDamage : public SaveFaults,
                     public testing::WithParamInterface<FaultInjectionFileSystem::Options> {};

TEST_P(SilentDamage, IsNamedByVerifyAndByLoading) {
  const auto calls = calls_of(kNewIteration);
  int found = 0, harmless = 0;
  for (std::size_t at = 0; at < calls.size() && !HasFailure(); ++at) {
    if (calls[at].name != "write") continue;
    const std::string file = calls[at].path.filename();
    SCOPED_TRACE("call " + std::to_string(at) + ", write to " + file);
    prepare(kNewIteration);
    FaultInjectionFileSystem::Options options = GetParam();
    options.at = at;
    FaultInjectionFileSystem files(options);
    EXPECT_EQ(try_save(kNewIteration, files), std::nullopt);

    const auto loading = error_of([&] { load(); });
    const auto verifying = error_of([&] {
      std::ostringstream out;
      verify_checkpoints(root_, false, out);
    });
    EXPECT_EQ(loading.has_value(), verifying.has_value());
    if (loading) {
      ++found;
      const std::string name = file.substr(0, file.find(".tmp."));
      EXPECT_THAT(*loading, HasSubstr(name));
      EXPECT_THAT(*verifying, HasSubstr(name));
      if (file.ends_with(".safetensors")) {
        EXPECT_THAT(*loading, AnyOf(HasSubstr("tensor '"), HasSubstr("header"), HasSubstr("size")));
        EXPECT_THAT(*verifying,
                    AnyOf(HasSubstr("tensor '"), HasSubstr("header"), HasSubstr("size")));
      }
    } else {
      ++harmless;
      EXPECT_TRUE(scratch_equals(*after_) || scratch_equals(*before_)) << "damage was loaded";
    }
    ASSERT_NO_THROW(load(4));
    EXPECT_TRUE(scratch_equals(*before_));
  }
  EXPECT_GT(found, 20);
  EXPECT_LE(harmless, 1);
}

INSTANTIATE_TEST_SUITE_P(
    AtEveryWrite, SilentDamage,
    testing::Values(FaultInjectionFileSystem::Options{.fault = Fault::truncate},
                    FaultInjectionFileSystem::Options{.fault = Fault::flip},
                    FaultInjectionFileSystem::Options{.fault = Fault::flip, .flip_at = 0.31},
                    FaultInjectionFileSystem::Options{.fault = Fault::flip, .flip_at = 0.5},
                    FaultInjectionFileSystem::Options{.fault = Fault::flip, .flip_at = 0.77},
                    FaultInjectionFileSystem::Options{.fault = Fault::flip, .flip_at = 1}));

}  // namespace
}  // namespace megatron
