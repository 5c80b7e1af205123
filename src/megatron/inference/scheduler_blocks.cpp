// The blocks of sequences: shared with others, extended, swapped and published.
#include <algorithm>
#include <ranges>

#include "megatron/base/division.h"
#include "megatron/inference/scheduler.h"

namespace megatron {

void Scheduler::release(Sequence& sequence) {
  for (const BlockId block : sequence.blocks | std::views::reverse) pool_.release(block);
  sequence.blocks.clear();
  sequence.num_computed = 0;
  sequence.snapshot_of_answer.reset();  // others may get its block
}

std::int64_t Scheduler::num_blocks(const Sequence& sequence, std::int64_t end) const {
  return ceil_div(std::max(end, sequence.num_encoded), options_.block_size);
}

void Scheduler::swap_out(Sequence& sequence, StepPlan& plan) {
  const std::int64_t count =
      sequence.num_computed > 0 ? num_blocks(sequence, sequence.num_computed) : 0;
  if (sequence.order.is_held || count > swap_pool_.num_available()) return;
  for (std::int64_t i = 0; i < count; ++i) {
    sequence.swapped.push_back(swap_pool_.allocate());
    plan.copies.push_back({.from = sequence.blocks[static_cast<std::size_t>(i)],
                           .to = sequence.swapped.back(),
                           .kind = CopyKind::swap_out});
  }
  sequence.num_swapped = sequence.num_computed;
}

void Scheduler::swap_in(Sequence& sequence, std::size_t num_found, StepPlan& plan) {
  for (std::size_t i = num_found; i < sequence.swapped.size(); ++i)
    plan.copies.push_back(
        {.from = sequence.swapped[i], .to = sequence.blocks[i], .kind = CopyKind::swap_in});
  // What was published before may have been evicted since.
  sequence.num_computed = static_cast<std::int64_t>(num_found) * options_.block_size;
  count_computed(sequence, sequence.num_swapped);
}

void Scheduler::release_swapped(Sequence& sequence) {
  for (const BlockId block : sequence.swapped) swap_pool_.release(block);
  sequence.swapped.clear();
  sequence.num_swapped = 0;
}

std::int64_t Scheduler::num_lacking(const Sequence& sequence, std::int64_t end) const {
  const std::int64_t more = num_blocks(sequence, end) - std::ssize(sequence.blocks);
  std::int64_t num_copies = 0;
  for (std::int64_t i = sequence.num_computed / options_.block_size;
       i * options_.block_size < end && i < std::ssize(sequence.blocks); ++i)
    num_copies += pool_.num_references(sequence.blocks[static_cast<std::size_t>(i)]) > 1 ? 1 : 0;
  return std::max<std::int64_t>(0, more) + num_copies;
}

void Scheduler::extend(Sequence& sequence, std::int64_t end, StepPlan& plan) {
  for (std::int64_t i = sequence.num_computed / options_.block_size;
       i * options_.block_size < end && i < std::ssize(sequence.blocks); ++i) {
    BlockId& block = sequence.blocks[static_cast<std::size_t>(i)];
    if (pool_.num_references(block) > 1) {
      const BlockId own = pool_.allocate();
      plan.copies.push_back({.from = block, .to = own});
      pool_.release(block);
      block = own;
    } else {
      pool_.withdraw(block);
    }
  }
  while (std::ssize(sequence.blocks) < num_blocks(sequence, end))
    sequence.blocks.push_back(pool_.allocate());
}

void Scheduler::attach_prefix(Sequence& sequence) {
  const std::span<const std::int64_t> tokens(sequence.tokens);
  const auto size = static_cast<std::size_t>(options_.block_size),
             most = static_cast<std::size_t>(sequence.finds_prefix ? sequence.first_output : 0),
             end = std::min(tokens.size(), most);
  for (std::size_t start = 0; start + size <= end; start += size) {
    const auto parent =
        sequence.blocks.empty() ? std::nullopt : std::optional(sequence.blocks.back());
    const auto found = pool_.find(parent, tokens.subspan(start, size));
    if (!found) break;
    pool_.retain(*found);
    sequence.blocks.push_back(*found);
  }
  std::vector<BlockId>& blocks = sequence.blocks;
  sequence.branch = std::ssize(blocks) * options_.block_size;
  while (options_.keeps_states && !blocks.empty() &&
         (blocks.size() * size >= tokens.size() || !pool_.has_snapshot(blocks.back()))) {
    pool_.release(blocks.back());
    blocks.pop_back();
  }
  if (options_.keeps_states && !blocks.empty()) use_snapshot(blocks.back());
  // The last token is computed in any case: what follows is sampled from its output.
  sequence.num_computed =
      std::min(std::ssize(sequence.blocks) * options_.block_size, std::ssize(sequence.tokens) - 1);
}

void Scheduler::count_computed(Sequence& sequence, std::int64_t num_computed) {
  const auto size = static_cast<std::size_t>(options_.block_size);
  const auto end = static_cast<std::size_t>(num_computed) / size;
  const std::span<const std::int64_t> tokens(sequence.tokens);
  for (auto i = static_cast<std::size_t>(sequence.num_computed) / size; i < end; ++i) {
    const auto parent = i == 0 ? std::nullopt : std::optional(sequence.blocks[i - 1]);
    BlockId& block = sequence.blocks[i];
    block = pool_.publish(block, parent, tokens.subspan(i * size, size));
  }
  sequence.num_computed = num_computed;
}

void Scheduler::take_snapshot(Sequence& sequence) {
  const std::int64_t size = options_.block_size, end = sequence.num_computed;
  const bool is_in_answer = end >= sequence.num_prompt_tokens;
  if (end % size != 0 || (end != sequence.branch && end + size <= sequence.num_prompt_tokens))
    return;
  const BlockId last = sequence.blocks[static_cast<std::size_t>(end / size - 1)];
  if (!pool_.add_snapshot(last)) return;
  if (is_in_answer && sequence.snapshot_of_answer) forget_snapshot(*sequence.snapshot_of_answer);
  if (is_in_answer) sequence.snapshot_of_answer = last;
  use_snapshot(last);
  snapshots_.push_back({sequence.order.sequence, last});
  while (std::ssize(used_snapshots_) > options_.max_snapshots)
    forget_snapshot(used_snapshots_.front());
}

void Scheduler::use_snapshot(BlockId block) {
  used_snapshots_.remove(block);  // it may be there of what was published in the block before
  used_snapshots_.push_back(block);
}

void Scheduler::forget_snapshot(BlockId block) {
  pool_.drop_snapshot(block);
  used_snapshots_.remove(block);
}

}  // namespace megatron
