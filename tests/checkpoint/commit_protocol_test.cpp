// Checks the commit of a save by several ranks in every interleaving. The calls of a real save are
// recorded, and each state that they can reach is made again: any rank may be at any of its calls
// while the others are at any of theirs, except where a collective orders them. A rank that was
// killed is one that stays where it is, so each state is also what is left when ranks die. In every
// state a reader finds the old or the new checkpoint whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/rank_run.h"
#include "megatron/base/file_system.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/inspect.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

enum class StepKind { create, write, sync, make_folder, rename, exchange, remove };

/// One change of the file system, or half of a write.
struct Step {
  StepKind kind = StepKind::create;
  fs::path path = {}, to = {};  ///< `to`: of rename and exchange
  std::string data = {};
};

/// Records the changes that a rank makes.
class Recorder : public FileSystem {
 public:
  const std::vector<Step>& steps() const { return steps_; }

  int create(const fs::path& path) override {
    const int descriptor = FileSystem::create(path);
    open_[descriptor] = path;
    steps_.push_back({.kind = StepKind::create, .path = path});
    return descriptor;
  }
  ssize_t write(int descriptor, const void* data, std::size_t size) override {
    const std::string text(static_cast<const char*>(data), size);
    for (const std::string& half : {text.substr(0, size / 2), text.substr(size / 2)})
      steps_.push_back({.kind = StepKind::write, .path = open_.at(descriptor), .data = half});
    return FileSystem::write(descriptor, data, size);
  }
  int sync(int descriptor) override {
    steps_.push_back({.kind = StepKind::sync, .path = open_.at(descriptor)});
    return 0;
  }
  int sync_folder(const fs::path& /*folder*/) override { return 0; }
  int preallocate(int /*descriptor*/, std::uint64_t /*bytes*/) override { return 0; }
  int make_folder(const fs::path& folder) override {
    const int result = FileSystem::make_folder(folder);
    if (result == 0) steps_.push_back({.kind = StepKind::make_folder, .path = folder});
    return result;
  }
  int rename(const fs::path& from, const fs::path& to) override {
    const int result = FileSystem::rename(from, to);
    if (result == 0) steps_.push_back({.kind = StepKind::rename, .path = from, .to = to});
    return result;
  }
  int exchange(const fs::path& a, const fs::path& b) override {
    const int result = FileSystem::exchange(a, b);
    if (result == 0) steps_.push_back({.kind = StepKind::exchange, .path = a, .to = b});
    return result;
  }
  int remove(const fs::path& path) override {
    const int result = FileSystem::remove(path);
    if (result == 0) steps_.push_back({.kind = StepKind::remove, .path = path});
    return result;
  }

 private:
  std::vector<Step> steps_;
  std::map<int, fs::path> open_;
};

/// The changes of a save: rank 0 prepares, then all ranks write, then rank 0 commits.
struct RecordedSave {
  std::vector<Step> prepare, commit;
  std::vector<std::vector<Step>> write;  ///< by rank

  /// The numbers of steps that were made.
  struct State {
    std::size_t prepared = 0, committed = 0;
    std::vector<std::size_t> written;
  };
  /// Calls `use` with every state that the collectives allow.
  template <class Use>
  void for_each_state(Use use) const {
    State state{.written = std::vector<std::size_t>(write.size(), 0)};
    for (; state.prepared < prepare.size(); ++state.prepared) use(state);
    for (bool is_next = true; is_next;) {
      use(state);
      is_next = false;
      for (std::size_t rank = 0; rank < write.size() && !is_next; ++rank) {
        is_next = state.written[rank] < write[rank].size();
        state.written[rank] = is_next ? state.written[rank] + 1 : 0;
      }
    }
    for (std::size_t rank = 0; rank < write.size(); ++rank)
      state.written[rank] = write[rank].size();
    while (state.committed < commit.size()) {
      ++state.committed;
      use(state);
    }
  }
};

class Commits : public testing::Test {
 protected:
  /// Saves `iteration` from all ranks. The content depends on `num_steps`.
  std::vector<Recorder> save(std::int64_t iteration, std::int64_t num_steps) {
    std::vector<Recorder> recorders(static_cast<std::size_t>(num_ranks_));
    const DataLayout layout{.dp = num_ranks_, .distributed_optimizer = true};
    on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
      RankRun run(layout, {}, rank, communicators);
      run.fill();
      run.optimizer->set_num_steps(num_steps);
      SaveRequest request = run.request(&recorders[static_cast<std::size_t>(rank.index)]);
      request.progress.iteration = iteration;
      request.settings = nullptr;
      save_checkpoint(root_, request);
    });
    return recorders;
  }

  static RecordedSave divided(const std::vector<Recorder>& recorders) {
    const auto is_shard = [](const Step& step) { return step.path.extension() == ".safetensors"; };
    RecordedSave save;
    for (const Recorder& recorder : recorders) {
      const std::vector<Step>& steps = recorder.steps();
      const auto first = std::ranges::find_if(steps, is_shard);
      const auto last = std::find_if_not(first, steps.end(), is_shard);
      save.write.emplace_back(first, last);
      if (&recorder != &recorders.front()) {
        EXPECT_EQ(save.write.back().size(), steps.size()) << "a rank only writes its shards";
        continue;
      }
      save.prepare.assign(steps.begin(), first);
      save.commit.assign(last, steps.end());
    }
    return save;
  }

  fs::path replayed(const fs::path& path) const { return replay_ / path.lexically_relative(root_); }

  void apply(const Step& step, std::set<fs::path>& unflushed) const {
    FileSystem& files = default_file_system();
    const fs::path path = replayed(step.path);
    switch (step.kind) {
      case StepKind::create:
      case StepKind::write: {
        std::ofstream file(path, step.kind == StepKind::create ? std::ios::trunc : std::ios::app);
        file << step.data;
        unflushed.insert(path);
        return;
      }
      case StepKind::sync:
        unflushed.erase(path);
        return;
      case StepKind::make_folder:
        ASSERT_EQ(files.make_folder(path), 0) << path;
        return;
      case StepKind::rename:
        ASSERT_EQ(files.rename(path, replayed(step.to)), 0) << path;
        return;
      case StepKind::exchange:
        ASSERT_EQ(files.exchange(path, replayed(step.to)), 0) << path;
        return;
      case StepKind::remove:
        ASSERT_EQ(files.remove(path), 0) << path;
    }
  }

  /// Makes a state again. A power loss takes the content of what was not flushed.
  void make(const RecordedSave& save, const RecordedSave::State& state, bool is_power_lost) {
    fs::remove_all(replay_);
    fs::copy(before_, replay_, fs::copy_options::recursive);
    std::set<fs::path> unflushed;
    const auto apply_first = [&](const std::vector<Step>& steps, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) apply(steps[i], unflushed);
    };
    apply_first(save.prepare, state.prepared);
    for (std::size_t rank = 0; rank < save.write.size(); ++rank)
      apply_first(save.write[rank], state.written[rank]);
    apply_first(save.commit, state.committed);
    if (!is_power_lost) return;
    for (const fs::path& path : unflushed)
      if (fs::exists(path)) fs::resize_file(path, 0);
  }

  /// Returns which checkpoint a reader finds, after it has read all of it.
  std::uint64_t identity_found() const {
    const auto source = find_checkpoint(replay_);
    if (!source) return 0;
    EXPECT_THAT(verify_folder(source->folder), testing::IsEmpty());
    return source->identity;
  }

  static fs::path quick_folder() {
    return fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  }

  const TemporaryFolder folder_{quick_folder()};
  const fs::path root_ = folder_ / "save", before_ = folder_ / "before",
                 replay_ = folder_ / "replay";
  std::int64_t num_ranks_ = 2;
};

/// The number of ranks, and the iteration that they save over iteration 4.
class CommitProtocol : public Commits,
                       public testing::WithParamInterface<std::tuple<std::int64_t, std::int64_t>> {
};

TEST_P(CommitProtocol, EveryStateHoldsTheOldOrTheNewCheckpointWhole) {
  num_ranks_ = std::get<0>(GetParam());
  const std::int64_t new_iteration = std::get<1>(GetParam());
  save(4, 7);
  fs::copy(root_, before_, fs::copy_options::recursive);
  const RecordedSave recorded = divided(save(new_iteration, 8));
  ASSERT_GE(recorded.commit.size(), 6u) << "manifest, folder and tracker";
  const std::uint64_t old_one = find_checkpoint(before_)->identity,
                      new_one = find_checkpoint(root_)->identity;
  ASSERT_NE(old_one, new_one);

  std::size_t num_states = 0;
  for (const bool is_power_lost : {false, true}) {
    bool is_new = false;
    recorded.for_each_state([&](const RecordedSave::State& state) {
      if (HasFailure()) return;
      ++num_states;
      make(recorded, state, is_power_lost);
      SCOPED_TRACE(std::to_string(state.prepared) + " steps prepared, " +
                   std::to_string(state.written.front()) + " and " +
                   std::to_string(state.written.back()) + " written, " +
                   std::to_string(state.committed) +
                   " committed, power lost: " + std::to_string(is_power_lost));
      const std::uint64_t found = identity_found();
      EXPECT_TRUE(found == old_one || found == new_one);
      EXPECT_FALSE(is_new && found == old_one) << "the new one vanished again";
      is_new = found == new_one;
      EXPECT_FALSE(is_new && state.committed == 0) << "before the commit";
      EXPECT_TRUE(new_iteration == 4 || verify_folder(replay_ / iteration_folder(4)).empty());
    });
    EXPECT_TRUE(is_new || HasFailure()) << "the last state is the new checkpoint";
  }
  std::size_t interleavings = 1;
  for (const std::vector<Step>& steps : recorded.write) interleavings *= steps.size() + 1;
  EXPECT_EQ(num_states, 2 * (recorded.prepare.size() + interleavings + recorded.commit.size()));
}

// A reader that has chosen a folder, before or during the commit, reads it to its end.
TEST_F(Commits, LeaveWhatAReaderChoseWhole) {
  save(4, 7);
  fs::copy(root_, before_, fs::copy_options::recursive);
  const RecordedSave recorded = divided(save(5, 8));
  RecordedSave::State state{.prepared = recorded.prepare.size(), .written = {}};
  for (const std::vector<Step>& steps : recorded.write) state.written.push_back(steps.size());
  for (; state.committed <= recorded.commit.size() && !HasFailure(); ++state.committed) {
    make(recorded, state, /*is_power_lost=*/false);
    const fs::path chosen = find_checkpoint(replay_)->folder;
    std::set<fs::path> unflushed;
    for (std::size_t i = state.committed; i < recorded.commit.size(); ++i) {
      apply(recorded.commit[i], unflushed);
      EXPECT_THAT(verify_folder(chosen), testing::IsEmpty());
    }
  }
}

using RanksAndIteration = std::tuple<std::int64_t, std::int64_t>;
INSTANTIATE_TEST_SUITE_P(OfRanks, CommitProtocol,
                         testing::Values(RanksAndIteration{2, 5}, RanksAndIteration{2, 4},
                                         RanksAndIteration{3, 5}));

}  // namespace
}  // namespace megatron
