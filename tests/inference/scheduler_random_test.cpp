// Random operations on a scheduler whose passes a fake model runs. It writes a hash of the text up
// to each token to the token's slot of the KV cache, and checks all slots that a pass reads. So any
// block that is shared, freed, copied or found wrongly is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "megatron/inference/scheduler.h"

namespace megatron {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr std::int64_t kVocabulary = 3;  ///< small, so that many texts begin alike
constexpr int kNumOperations = 100'000;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// Returns the hash of a text that goes on with `token`.
std::uint64_t hash_after(std::uint64_t hash, std::int64_t token) {
  hash = (hash + static_cast<std::uint64_t>(token) + 1) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

/// Returns the token that the model samples after a text.
std::int64_t token_after(std::uint64_t hash) {
  return static_cast<std::int64_t>((hash >> 17) % kVocabulary);
}

std::int64_t other_token(std::int64_t token) { return (token + 1) % kVocabulary; }

struct Scenario {
  std::string name;
  SchedulerOptions options;
  std::int64_t max_prompt = 40;
  bool forks = true;     ///< whether sequences fork, and are held for it
  bool encodes = false;  ///< whether sequences have texts of an encoder
};
std::ostream& operator<<(std::ostream& out, const Scenario& scenario) {
  return out << scenario.name;
}

std::int64_t num_tokens(const StepPlan& plan) {
  std::int64_t sum = 0;
  for (const ScheduledRun& run : plan.runs) sum += run.count;
  return sum;
}

/// What the test knows of a sequence in the scheduler.
struct Text {
  std::int64_t priority = 0;
  SequenceId arrival = 0;
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_tokens = 0;
  std::int64_t max_tokens = 0;
  std::int64_t max_drafts = 0;
  double deadline_s = kNever;
  std::int64_t first_output = std::numeric_limits<std::int64_t>::max();
  std::int64_t num_encoded = 0;   ///< tokens of an encoder's text
  std::int64_t num_computed = 0;  ///< 0 when it has no blocks
  std::int64_t num_swapped = 0;   ///< computed tokens when it was preempted, if there is swap
  bool is_held = false;
};

/// A state of a layer: of the text up to a position.
struct State {
  std::int64_t position = 0;
  std::uint64_t hash = 0;
};

/// A run with what the pass reads, which later changes of the scheduler do not reach.
struct Input {
  ScheduledRun run;
  Tokens tokens;
  std::vector<BlockId> blocks;
  Text text;
};

class RandomRequests {
 public:
  explicit RandomRequests(const Scenario& scenario)
      : scenario_(scenario),
        options_(scenario.options),
        scheduler_(options_),
        twin_(options_),
        slots_(static_cast<std::size_t>(options_.num_blocks * options_.block_size)),
        swap_slots_(static_cast<std::size_t>(options_.num_swap_blocks * options_.block_size)),
        encoded_slots_(slots_),
        swapped_encoded_slots_(swap_slots_) {}

  void operate() {
    const std::int64_t kind = draw(1000);
    if (kind < 2)
      recompute_all();
    else if (kind < 30)
      cancel();
    else if (kind < 130)
      resolve_held();
    else if (kind < 480 && texts_.size() < 30)
      add();
    else
      step();
  }

  /// Runs all requests to their end.
  void finish() {
    for (int steps = 0; !texts_.empty(); ++steps) {
      ASSERT_LT(steps, 30 * (scenario_.max_prompt + 20)) << "a sequence does not end";
      while (resolve_held()) continue;
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(scheduler_.is_empty());
    EXPECT_EQ(scheduler_.pool().num_available(), options_.num_blocks);
    EXPECT_EQ(scheduler_.swap_pool().num_available(), options_.num_swap_blocks);
  }

  /// Checks that everything has happened often.
  void check_counts() const {
    EXPECT_GT(num_ended_, 2000);
    EXPECT_GT(num_expired_, 50);
    EXPECT_GT(num_preempted_, 200);
    if (!options_.keeps_states) {
      EXPECT_GT(num_accepted_, 500);
    }
    if (options_.num_swap_blocks > 0) {
      EXPECT_GT(num_swapped_in_, scenario_.encodes ? 10 : 50);  // their prompts are short
    }
    if (options_.prefix_cache) {
      EXPECT_GT(num_found_, options_.keeps_states ? 100 : 1000);
    }
    if (scenario_.forks || options_.prefix_cache) {
      EXPECT_GT(num_copies_, 50);
    }
  }

 private:
  std::int64_t draw(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  bool one_in(std::int64_t n) { return draw(n) == 0; }

  /// Returns the place of a sequence in the order of service.
  auto order(SequenceId sequence) const {
    const Text& text = texts_.at(sequence);
    return std::tuple(text.priority, text.arrival, sequence);
  }
  bool has_blocks(SequenceId sequence) const { return !scheduler_.blocks(sequence).empty(); }

  void add() {
    Request request;
    if (!one_in(3) && !last_prompt_.empty())  // the beginning of the last prompt
      request.prompt.assign(last_prompt_.begin(),
                            last_prompt_.begin() + draw(std::ssize(last_prompt_)));
    const std::int64_t room = scenario_.max_prompt - std::ssize(request.prompt);
    const std::int64_t num_more =
        one_in(2) ? draw(room + 1) : draw(std::min<std::int64_t>(room, 6));
    for (std::int64_t i = 0; i < num_more; ++i) request.prompt.push_back(draw(kVocabulary));
    if (request.prompt.empty()) request.prompt = {0};
    last_prompt_ = request.prompt;
    request.max_new_tokens = draw(13);
    if (one_in(10)) request.priority = draw(3) - 1;
    if (one_in(20)) request.deadline_s = now_s_ + static_cast<double>(draw(30));
    const std::int64_t num_tokens = std::ssize(request.prompt);
    if (one_in(5)) request.first_output = one_in(2) ? 0 : draw(num_tokens);
    if (scenario_.encodes) request.num_encoded = 1 + draw(12);
    const SequenceId id = scheduler_.add(request);
    ASSERT_EQ(twin_.add(request), id);
    Text text{.priority = request.priority,
              .arrival = id,
              .num_prompt_tokens = num_tokens,
              .num_tokens = num_tokens,
              .max_tokens = num_tokens + request.max_new_tokens,
              .max_drafts = one_in(2) ? draw(4) : 0,
              .deadline_s = request.deadline_s,
              .first_output = request.first_output,
              .num_encoded = request.num_encoded};
    scheduler_.set_max_drafts(id, text.max_drafts);
    twin_.set_max_drafts(id, text.max_drafts);
    texts_[id] = text;
  }

  SequenceId random_text() { return std::next(texts_.begin(), draw(std::ssize(texts_)))->first; }

  void drop(SequenceId id) {
    ASSERT_TRUE(scheduler_.drop(id));
    ASSERT_TRUE(twin_.drop(id));
    ASSERT_FALSE(scheduler_.drop(id));
    texts_.erase(id);
  }

  void cancel() {
    if (!texts_.empty()) drop(random_text());
  }

  void fork(SequenceId id, std::int64_t num_tokens, std::int64_t token) {
    const SequenceId copy = scheduler_.fork(id, num_tokens, token);
    ASSERT_EQ(twin_.fork(id, num_tokens, token), copy);
    Text text = texts_.at(id);
    text.is_held = false;
    text.first_output = Text{}.first_output;
    text.num_tokens = num_tokens + 1;
    text.num_computed = has_blocks(copy) ? std::min(text.num_computed, num_tokens) : 0;
    text.num_swapped = 0;
    if (has_blocks(copy)) states_[copy] = states_[id];
    texts_[copy] = text;
  }

  /// Forks a held sequence in place of which its forks go on, as beams do.
  bool resolve_held() {
    const auto held = std::ranges::find_if(texts_, [](const auto& x) { return x.second.is_held; });
    if (held == texts_.end()) return false;
    const SequenceId id = held->first;
    const Text text = held->second;
    if (text.num_tokens + 1 < text.max_tokens && texts_.size() < 40)
      for (std::int64_t i = draw(3); i >= 0; --i) fork(id, text.num_tokens, draw(kVocabulary));
    drop(id);
    return true;
  }

  void recompute_all() {
    scheduler_.recompute_all();
    twin_.recompute_all();
    for (auto& [id, text] : texts_) text.num_computed = text.num_swapped = 0;
    states_.clear();
    snapshots_.clear();
  }

  void step() {
    now_s_ += 1;
    std::set<SequenceId> decodes, had_blocks;
    for (const auto& [id, text] : texts_) {
      if (!has_blocks(id)) continue;
      had_blocks.insert(id);
      if (text.num_tokens - text.num_computed == 1) decodes.insert(id);
    }
    StepPlan plan = scheduler_.plan(now_s_);
    ASSERT_EQ(twin_.plan(now_s_), plan) << "the same calls make the same plans";
    for (const SequenceId id : plan.expired) {
      ASSERT_LE(texts_.at(id).deadline_s, now_s_);
      texts_.erase(id);
      ++num_expired_;
    }
    for (const auto& [id, text] : texts_) ASSERT_GT(text.deadline_s, now_s_);
    for (const SequenceId id : plan.preempted) {
      Text& text = texts_.at(id);
      text.num_swapped = options_.num_swap_blocks > 0 ? text.num_computed : 0;
      text.num_computed = 0;
      had_blocks.erase(id);
      decodes.erase(id);
      ++num_preempted_;
    }
    check_runs(plan, had_blocks, decodes);
    check_order(plan, had_blocks);
    check_blocks();
    if (testing::Test::HasFatalFailure()) return;
    std::vector<Input> inputs;
    for (ScheduledRun& run : plan.runs) {
      if (one_in(3)) {  // fewer drafts are found
        const std::int64_t num_left_out = draw(run.num_drafts + 1);
        run.count -= num_left_out;
        run.num_drafts -= num_left_out;
      }
      inputs.push_back({run, scheduler_.tokens(run.sequence), scheduler_.blocks(run.sequence),
                        texts_.at(run.sequence)});
    }
    if (one_in(8)) cancel();
    if (one_in(8)) add();
    advance(plan, run_pass(plan, inputs));
  }

  void check_runs(const StepPlan& plan, const std::set<SequenceId>& had_blocks,
                  const std::set<SequenceId>& decodes) {
    std::int64_t num_encoded = 0;
    for (const ScheduledRun& run : plan.runs)
      num_encoded += run.first == 0 ? texts_.at(run.sequence).num_encoded : 0;
    ASSERT_LE(num_tokens(plan) + num_encoded, options_.max_step_tokens);
    if (options_.chunked_prefill) {
      ASSERT_LE(num_outputs(plan), options_.max_step_outputs);
    }
    ASSERT_LE(scheduler_.num_running(), options_.max_running);
    std::set<SequenceId> has_run;
    for (const ScheduledRun& run : plan.runs) {
      ASSERT_TRUE(has_run.insert(run.sequence).second) << "two runs of a sequence";
      const Text& text = texts_.at(run.sequence);
      const std::int64_t size = options_.block_size;
      if (had_blocks.contains(run.sequence)) {
        ASSERT_EQ(run.first, text.num_computed) << "each position is computed once";
      } else {  // it begins at 0 or behind what was found
        const bool is_swapped = run.first > 0 && run.first == text.num_swapped;
        ASSERT_TRUE(is_swapped || run.first % size == 0 ||
                    (!options_.keeps_states && run.first == text.num_tokens - 1));
        ASSERT_TRUE(is_swapped || run.first <= (options_.prefix_cache ? text.first_output : 0));
        num_found_ += run.first > 0 ? 1 : 0;
      }
      const std::int64_t end = run.first + run.count - run.num_drafts;
      ASSERT_GT(end, run.first);
      ASSERT_LE(end, text.num_tokens);
      ASSERT_EQ(run.samples, end == text.num_tokens && end < text.max_tokens);
      ASSERT_LE(run.num_drafts,
                run.samples ? std::min(text.max_drafts, text.max_tokens - end - 1) : 0);
      const std::int64_t num_left =
          text.num_tokens - run.first + (run.first == 0 ? text.num_encoded : 0);
      if (!options_.chunked_prefill && num_left <= options_.max_step_tokens &&
          !had_blocks.contains(run.sequence)) {
        ASSERT_EQ(end, text.num_tokens) << "prompts are computed whole";
      }
      const std::vector<BlockId>& blocks = scheduler_.blocks(run.sequence);
      ASSERT_GE(std::ssize(blocks) * size, run.first + run.count);
      for (std::int64_t i = run.first / size; i * size < run.first + run.count; ++i)
        ASSERT_EQ(scheduler_.pool().num_references(blocks[static_cast<std::size_t>(i)]), 1)
            << "a pass writes to a shared block";
    }
    for (const SequenceId id : decodes)
      if (texts_.contains(id)) {
        ASSERT_TRUE(has_run.contains(id)) << "a decode step is left out";
      }
    check_progress(has_run);
  }

  /// Checks that the sequence served first gets on.
  void check_progress(const std::set<SequenceId>& has_run) {
    std::vector<SequenceId> all, running;
    for (const auto& [id, text] : texts_) {
      if (text.is_held) continue;
      all.push_back(id);
      if (has_blocks(id)) running.push_back(id);
    }
    const auto earlier = [this](SequenceId a, SequenceId b) { return order(a) < order(b); };
    if (all.empty()) {
      ASSERT_TRUE(has_run.empty());
      return;
    }
    ASSERT_FALSE(running.empty()) << "nothing is computed";
    ASSERT_TRUE(has_run.contains(*std::ranges::min_element(running, earlier)));
    // Forks and whole prompts may have to wait for others of their priority to end.
    if (!scenario_.forks && options_.chunked_prefill) {
      ASSERT_TRUE(has_run.contains(*std::ranges::min_element(all, earlier)));
    }
  }

  /// Returns how many tokens of a plan have an output that is wanted as part of a prompt.
  std::int64_t num_outputs(const StepPlan& plan) const {
    std::int64_t sum = 0;
    for (const ScheduledRun& run : plan.runs) {
      const Text& text = texts_.at(run.sequence);
      const std::int64_t next = std::max(run.first, text.first_output);
      if (next < text.num_prompt_tokens - 1)
        sum += std::max<std::int64_t>(0, run.first + run.count - next);
    }
    return sum;
  }

  void check_order(const StepPlan& plan, const std::set<SequenceId>& had_blocks) {
    const bool has_tokens_left = num_tokens(plan) < options_.max_step_tokens &&
                                 num_outputs(plan) < options_.max_step_outputs;
    for (const auto& [id, text] : texts_) {
      if (text.is_held || !has_blocks(id)) continue;
      for (const auto& [other, waiting] : texts_) {
        if (waiting.is_held || has_blocks(other)) continue;
        if (!had_blocks.contains(id)) {
          ASSERT_LT(order(id), order(other)) << "a sequence passes an earlier one";
        }
        if (options_.chunked_prefill && has_tokens_left && plan.preempted.empty()) {
          ASSERT_LE(text.priority, waiting.priority) << "a worse priority keeps its place";
        }
      }
      for (const SequenceId other : plan.preempted)
        if (!texts_.at(other).is_held && !has_blocks(other)) {
          ASSERT_LT(order(id), order(other)) << "preempted before a later one";
        }
    }
  }

  /// Checks that the references to each block are those of the sequences.
  void check_blocks() {
    std::map<BlockId, std::int64_t> num_references;
    for (const auto& [id, text] : texts_)
      for (const BlockId block : scheduler_.blocks(id)) ++num_references[block];
    std::int64_t num_available = options_.num_blocks;
    for (const auto& [block, count] : num_references) {
      ASSERT_EQ(scheduler_.pool().num_references(block), count);
      --num_available;
    }
    ASSERT_EQ(scheduler_.pool().num_available(), num_available) << "a block is lost";
  }

  std::size_t slot(const std::vector<BlockId>& blocks, std::size_t position) const {
    const auto size = static_cast<std::size_t>(options_.block_size);
    return static_cast<std::size_t>(blocks[position / size]) * size + position % size;
  }

  /// Runs the model. Returns what each run samples.
  std::vector<Tokens> run_pass(const StepPlan& plan, std::vector<Input>& inputs) {
    const auto size = options_.block_size;
    for (const BlockCopy& copy : plan.copies) {
      const auto& from = copy.kind == CopyKind::swap_in ? swap_slots_ : slots_;
      auto& to = copy.kind == CopyKind::swap_out ? swap_slots_ : slots_;
      std::copy_n(from.begin() + copy.from * size, size, to.begin() + copy.to * size);
      const auto& encoded =
          copy.kind == CopyKind::swap_in ? swapped_encoded_slots_ : encoded_slots_;
      auto& to_encoded = copy.kind == CopyKind::swap_out ? swapped_encoded_slots_ : encoded_slots_;
      std::copy_n(encoded.begin() + copy.from * size, size, to_encoded.begin() + copy.to * size);
      num_copies_ += copy.kind == CopyKind::within ? 1 : 0;
      num_swapped_in_ += copy.kind == CopyKind::swap_in ? 1 : 0;
    }
    std::vector<std::vector<std::uint64_t>> hashes;
    std::set<std::size_t> written;
    for (Input& input : inputs) {
      const auto first = static_cast<std::size_t>(input.run.first);
      const auto end = static_cast<std::size_t>(input.run.first + input.run.count);
      std::vector<std::uint64_t>& own = hashes.emplace_back();
      for (std::size_t i = 0; i < end; ++i) {
        if (i == input.tokens.size()) {  // a draft, which is mostly right
          const std::int64_t right = token_after(own.back());
          input.tokens.push_back(one_in(4) ? other_token(right) : right);
        }
        own.push_back(hash_after(own.empty() ? 0 : own.back(), input.tokens[i]));
        if (i < first) continue;
        EXPECT_TRUE(written.insert(slot(input.blocks, i)).second) << "two runs write to a slot";
        slots_[slot(input.blocks, i)] = own.back();
      }
    }
    for (const Input& input : inputs) {  // the layers that attend to an encoder's text
      for (std::size_t p = 0; p < static_cast<std::size_t>(input.text.num_encoded); ++p) {
        std::uint64_t& kept = encoded_slots_[slot(input.blocks, p)];
        const std::uint64_t own = hash_after(static_cast<std::uint64_t>(input.text.arrival),
                                             static_cast<std::int64_t>(p));
        if (input.run.first == 0) kept = own;
        EXPECT_EQ(kept, own) << "position " << p << " of an encoder's text";
      }
    }
    std::vector<Tokens> sampled;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::size_t p = 0; p < static_cast<std::size_t>(inputs[i].run.first); ++p)
        EXPECT_EQ(slots_[slot(inputs[i].blocks, p)], hashes[i][p]) << "position " << p;
      if (options_.keeps_states) compute_state(inputs[i], hashes[i]);
      sampled.push_back(sample(inputs[i], hashes[i]));
    }
    return sampled;
  }

  /// Runs a layer with a state: it goes on from the state of the last pass, or from a snapshot.
  void compute_state(const Input& input, const std::vector<std::uint64_t>& hashes) {
    const std::int64_t first = input.run.first;
    State& state = states_[input.run.sequence];
    if (state.position != first) {
      const auto last = static_cast<std::size_t>(first / options_.block_size) - 1;
      ASSERT_TRUE(first == 0 || snapshots_.contains(input.blocks[last])) << "there is no state";
      state = first == 0 ? State{} : snapshots_.at(input.blocks[last]);
    }
    EXPECT_EQ(state.position, first);
    EXPECT_EQ(state.hash, first == 0 ? 0 : hashes[static_cast<std::size_t>(first) - 1]);
    state = {std::ssize(hashes), hashes.back()};
  }

  /// Returns the accepted drafts of a run and one more token.
  Tokens sample(const Input& input, const std::vector<std::uint64_t>& hashes) {
    Tokens sampled;
    if (!input.run.samples) return sampled;
    const std::size_t end = hashes.size();
    for (std::size_t i = end - 1 - static_cast<std::size_t>(input.run.num_drafts); i < end; ++i) {
      sampled.push_back(token_after(hashes[i]));
      if (i + 1 < end && input.tokens[i + 1] != sampled.back()) break;
    }
    num_accepted_ += std::ssize(sampled) - 1;
    return sampled;
  }

  void advance(const StepPlan& plan, std::vector<Tokens> sampled) {
    std::vector<SequenceId> expected;
    for (std::size_t i = 0; i < plan.runs.size(); ++i) {
      const ScheduledRun& run = plan.runs[i];
      const auto found = texts_.find(run.sequence);
      if (found == texts_.end()) continue;  // cancelled
      Text& text = found->second;
      if (run.samples && scenario_.forks && one_in(6)) {
        sampled[i].clear();
        text.is_held = true;
      }
      const std::int64_t num_sampled = std::ssize(sampled[i]);
      text.num_tokens += num_sampled;
      text.num_computed = run.first + run.count - run.num_drafts;
      if (num_sampled > 0) text.num_computed += num_sampled - 1;
      if (text.num_tokens == text.max_tokens &&
          (num_sampled > 0 || text.num_computed == text.num_tokens))
        expected.push_back(run.sequence);
    }
    const std::vector<SequenceId> ended = scheduler_.advance(plan, sampled);
    ASSERT_EQ(twin_.advance(plan, sampled), ended);
    ASSERT_EQ(ended, expected);
    for (const StateSnapshot& taken : scheduler_.snapshots())
      snapshots_[taken.block] = states_.at(taken.sequence);
    std::erase_if(snapshots_,
                  [this](const auto& x) { return !scheduler_.pool().has_snapshot(x.first); });
    for (const SequenceId id : ended) {
      ASSERT_FALSE(scheduler_.contains(id));
      texts_.erase(id);
      ++num_ended_;
    }
    for (std::size_t i = 0; i < plan.runs.size(); ++i) {
      const SequenceId id = plan.runs[i].sequence;
      if (!texts_.contains(id) || sampled[i].empty()) continue;
      const std::int64_t num_tokens = texts_.at(id).num_tokens;
      ASSERT_EQ(std::ssize(scheduler_.tokens(id)), num_tokens);
      if (scenario_.forks && one_in(10) && texts_.size() < 40)
        fork(id, num_tokens - 1, other_token(sampled[i].back()));
      else if (one_in(25))
        drop(id);  // a stop token
    }
  }

  const Scenario scenario_;
  const SchedulerOptions options_;
  std::mt19937 random_{7};
  Scheduler scheduler_, twin_;
  std::vector<std::uint64_t> slots_, swap_slots_;  ///< the KV cache and the swap memory
  std::vector<std::uint64_t> encoded_slots_, swapped_encoded_slots_;  ///< of other layers
  std::map<SequenceId, State> states_;
  std::map<BlockId, State> snapshots_;
  std::map<SequenceId, Text> texts_;
  Tokens last_prompt_;
  double now_s_ = 0;
  std::int64_t num_ended_ = 0, num_expired_ = 0, num_preempted_ = 0;
  std::int64_t num_accepted_ = 0, num_found_ = 0, num_copies_ = 0, num_swapped_in_ = 0;
};

class RandomSchedule : public testing::TestWithParam<Scenario> {};

TEST_P(RandomSchedule, ComputesEveryTextRightAndLosesNothing) {
  RandomRequests requests(GetParam());
  for (int i = 0; i < kNumOperations && !HasFailure(); ++i) requests.operate();
  if (!HasFailure()) requests.finish();
  if (!HasFailure()) requests.check_counts();
}

constexpr SchedulerOptions kTight{
    .max_running = 6, .max_step_tokens = 16, .block_size = 4, .num_blocks = 20};

/// Returns kTight with a change.
template <class Change>
SchedulerOptions tight(const Change& change) {
  SchedulerOptions options = kTight;
  change(options);
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Options, RandomSchedule,
    testing::Values(
        Scenario{"forks", kTight}, Scenario{.name = "in_order", .options = kTight, .forks = false},
        Scenario{.name = "swap",
                 .options = tight([](SchedulerOptions& o) { o.num_swap_blocks = 15; }),
                 .forks = false},
        Scenario{.name = "swap_without_prefixes", .options = tight([](SchedulerOptions& o) {
                                                    o.prefix_cache = false;
                                                    o.num_swap_blocks = 15;
                                                  })},
        Scenario{.name = "states", .options = tight([](SchedulerOptions& o) {
                                     o.keeps_states = true;
                                     o.num_swap_blocks = 10;
                                   })},
        Scenario{.name = "no_prefixes",
                 .options = tight([](SchedulerOptions& o) { o.prefix_cache = false; })},
        Scenario{.name = "few_outputs",
                 .options = tight([](SchedulerOptions& o) { o.max_step_outputs = 5; })},
        Scenario{.name = "whole_prompts",
                 .options = tight([](SchedulerOptions& o) { o.chunked_prefill = false; }),
                 .max_prompt = 16},
        Scenario{.name = "encoders",
                 .options = tight([](SchedulerOptions& o) {
                   o.chunked_prefill = o.prefix_cache = false;
                   o.num_swap_blocks = 60;
                 }),
                 .max_prompt = 6,
                 .encodes = true},
        Scenario{.name = "one_block_of_room",
                 .options = tight([](SchedulerOptions& o) { o.num_blocks = 13; })},
        Scenario{.name = "blocks_of_one",
                 .options =
                     {.max_running = 8, .max_step_tokens = 9, .block_size = 1, .num_blocks = 60}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatron
