#include "megatron/inference/speculation/drafter.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/input_ids.h"

namespace megatron {
namespace {

class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(const SpeculativeConfig& config) : config_(config) {}

  std::vector<std::vector<DraftToken>> propose(std::span<const DraftingRun> runs,
                                               std::span<const BlockCopy> /*copies*/) override {
    std::vector<std::vector<DraftToken>> drafts;
    for (const DraftingRun& one : runs) {
      auto& own = drafts.emplace_back();
      for (const std::int64_t id :
           look_up_ngram(one.tokens, one.run.num_drafts, config_.ngram_prompt_lookup_min,
                         config_.ngram_prompt_lookup_max))
        own.push_back({id});
    }
    return drafts;
  }

 private:
  const SpeculativeConfig config_;
};

}  // namespace

std::vector<std::int64_t> look_up_ngram(std::span<const std::int64_t> tokens, std::int64_t count,
                                        std::int64_t shortest, std::int64_t longest) {
  std::vector<std::int64_t> drafts;
  if (count <= 0) return drafts;
  const auto at = [&](std::int64_t i) { return tokens[static_cast<std::size_t>(i)]; };
  const std::int64_t size = std::ssize(tokens);
  std::int64_t best = 0, best_end = 0;
  for (std::int64_t end = size - 1; end > best && best < longest; --end) {
    std::int64_t length = 0;
    while (length < std::min(end, longest) && at(end - 1 - length) == at(size - 1 - length))
      ++length;
    if (length > best) best = length, best_end = end;
  }
  if (best == 0 || best < shortest) return drafts;
  for (std::int64_t i = best_end; std::ssize(drafts) < count; ++i)
    drafts.push_back(i < size ? at(i) : drafts[static_cast<std::size_t>(i - size)]);
  return drafts;
}

void BlockMemory::copy(std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    CacheMemory& from = copy.kind == CopyKind::swap_in ? swapped : *cache;
    CacheMemory& to = copy.kind == CopyKind::swap_out ? swapped : *cache;
    from.copy_block(copy.from, to, copy.to);
  }
}

void DraftMemory::begin_step(std::span<const DraftingRun> runs, std::span<const BlockCopy> copies) {
  memory_.copy(copies);
  for (const BlockCopy& copy : copies) {
    auto& from = copy.kind == CopyKind::swap_in ? swapped_filled_ : filled_;
    auto& to = copy.kind == CopyKind::swap_out ? swapped_filled_ : filled_;
    to[copy.to] = from[copy.from];
  }
  for (const auto& [run, tokens, blocks, sampler] : runs) {
    for (std::int64_t i = run.first / kBlockPositions; i * kBlockPositions < run.first + run.count;
         ++i) {
      std::int64_t& filled = filled_[blocks[static_cast<std::size_t>(i)]];
      filled = std::min(filled, std::max<std::int64_t>(0, run.first - i * kBlockPositions));
    }
  }
}

std::int64_t DraftMemory::num_filled(std::span<const BlockId> blocks) const {
  std::int64_t count = 0;
  for (const BlockId block : blocks) {
    const auto found = filled_.find(block);
    const std::int64_t filled = found == filled_.end() ? 0 : found->second;
    count += filled;
    if (filled < kBlockPositions) break;
  }
  return count;
}

void DraftMemory::set_filled(std::span<const BlockId> blocks, std::int64_t count) {
  for (const BlockId block : blocks) {
    if (count <= 0) return;
    std::int64_t& filled = filled_[block];
    filled = std::max(filled, std::min(count, kBlockPositions));
    count -= kBlockPositions;
  }
}

void SpeculationStats::add(std::span<const ScheduledRun> runs,
                           std::span<const std::int64_t> num_drawn, double draft_s, double pass_s) {
  bool is_decode = true;
  std::int64_t drafts = 0, tokens = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ScheduledRun& run = runs[i];
    is_decode = is_decode && run.samples && run.count == 1 + run.num_drafts;
    drafts += run.num_drafts;
    tokens += num_drawn[i];
    if (run.num_drafts == 0) continue;
    num_accepted += std::max<std::int64_t>(0, num_drawn[i] - 1);
    ++num_runs;
  }
  num_drafts += drafts;
  if (!is_decode) return;
  Speed& speed = drafts > 0 ? with_drafts : without;
  speed.num_tokens += tokens;
  speed.seconds += pass_s + (drafts > 0 ? draft_s : 0);
}

double SpeculationStats::speedup() const {
  const auto speed = [](const Speed& one) {
    return one.seconds > 0 ? static_cast<double>(one.num_tokens) / one.seconds : 0;
  };
  return speed(without) > 0 ? speed(with_drafts) / speed(without) : 0;
}

std::string SpeculationStats::summary() const {
  if (num_drafts == 0) return "speculative decoding: nothing was proposed";
  const auto ratio = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << "speculative decoding: " << num_accepted << " of "
       << num_drafts << " proposed tokens were accepted (" << 100 * ratio(num_accepted, num_drafts)
       << " %), " << std::setprecision(2) << ratio(num_accepted + num_runs, num_runs)
       << " tokens of a text in a step";
  if (const double times = speedup(); times > 0) {
    text << "; " << times << " times as fast as without";
    if (times < 1) text << ": it does not pay here, leave --num-speculative-tokens out";
  }
  return text.str();
}

std::unique_ptr<Drafter> make_drafter(const SpeculationOptions& options, const ModelRunner& target,
                                      std::int64_t num_blocks) {
  const SpeculativeConfig& config = options.config;
  if (config.num_speculative_tokens == 0) return std::make_unique<Drafter>();
  const std::string flag =
      "--num-speculative-tokens " + std::to_string(config.num_speculative_tokens);
  if (shares_expert_capacity(target.config()))
    throw UserError({flag,
                     "the tokens of a pass share the capacity of the model's experts, so drafts "
                     "change what it says",
                     "leave it out"});
  if (target.model().keeps_states())
    throw UserError(
        {flag, "the states of the model's layers do not forget rejected drafts", "leave it out"});
  if (target.model().has_encoder() ||
      (options.draft_model != nullptr && options.draft_model->model().has_encoder()))
    throw UserError({flag, "nothing is proposed to or by a model with an encoder in this version",
                     "leave it out"});
  switch (config.method()) {
    case SpeculativeMethod::ngram:
      return std::make_unique<NgramDrafter>(config);
    case SpeculativeMethod::draft_model: {
      MEGATRON_CHECK(options.draft_model != nullptr, "there is no draft model");
      const std::int64_t own = options.draft_model->config().vocab_size,
                         wanted = target.config().vocab_size;
      if (own != wanted)
        throw UserError({"--speculative-model " + config.speculative_model,
                         "it has a vocabulary of " + std::to_string(own) +
                             " tokens, and the model one of " + std::to_string(wanted),
                         "give a model with the same tokenizer"});
      if (options.draft_model->model().keeps_states())
        throw UserError({"--speculative-model " + config.speculative_model,
                         "the states of its layers do not forget rejected drafts",
                         "give a model without recurrent layers"});
      return make_model_drafter(*options.draft_model, config.speculative_rejection_sampling,
                                num_blocks);
    }
    case SpeculativeMethod::automatic:
    case SpeculativeMethod::mtp:
      break;
  }
  const std::int64_t depths = target.config().mtp_num_layers;
  if (depths < config.num_speculative_tokens)
    throw UserError({flag,
                     "the model has " + std::to_string(depths) +
                         " heads of multi-token prediction, each of which proposes one",
                     "give a smaller number, --speculative-model DIR or --speculative-method "
                     "ngram"});
  if (!target.is_whole())
    throw UserError({flag,
                     "heads of multi-token prediction propose nothing over several pipeline stages "
                     "in this version: only the last one has the hidden rows that they read",
                     "set --pipeline-model-parallel-size 1, or give another --speculative-method"});
  return make_mtp_drafter(target, config.num_speculative_tokens, num_blocks);
}

}  // namespace megatron
