#include "megatron/cli/chaos_plan.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::array<std::pair<FaultKind, const char*>, 9> kNames{
    {{FaultKind::kill, "kill"},
     {FaultKind::segfault, "segfault"},
     {FaultKind::stop, "stop"},
     {FaultKind::pause, "pause"},
     {FaultKind::slow, "slow"},
     {FaultKind::full_disk, "full-disk"},
     {FaultKind::drop_link, "drop-link"},
     {FaultKind::corrupt_link, "corrupt-link"},
     {FaultKind::bit_flip, "bit-flip"}}};

constexpr std::uint64_t kNumParts = 1000;

/// The standard fixes the numbers of the engine, but not those of its distributions.
std::int64_t below(std::mt19937_64& random, std::int64_t limit) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
}

}  // namespace

const char* name_of(FaultKind kind) {
  return std::ranges::find(kNames, kind, &std::pair<FaultKind, const char*>::first)->second;
}

FaultKind fault_kind(const std::string& name) {
  for (const auto& [kind, known] : kNames)
    if (name == known) return kind;
  throw InternalError("there is no fault '" + name + "'");
}

bool ends_the_ranks(FaultKind kind) {
  return kind == FaultKind::kill || kind == FaultKind::segfault || kind == FaultKind::stop ||
         kind == FaultKind::bit_flip;
}

bool breaks_a_link(FaultKind kind) {
  return kind == FaultKind::drop_link || kind == FaultKind::corrupt_link;
}

std::vector<Fault> plan_faults(const ChaosPlanOptions& options) {
  std::mt19937_64 random(options.seed);
  const std::int64_t steps = std::max<std::int64_t>(0, options.train_iters - 1),
                     count = std::min(options.num_faults, steps);
  std::vector<Fault> faults;
  for (std::int64_t i = 0; i < count; ++i) {
    // Each fault has its share of the steps.
    const std::int64_t begin = 1 + steps * i / count, end = 1 + steps * (i + 1) / count;
    Fault fault;
    fault.iteration = begin + below(random, end - begin);
    fault.kind = options.kinds[static_cast<std::size_t>(
        below(random, static_cast<std::int64_t>(options.kinds.size())))];
    fault.rank = below(random, options.num_ranks);
    fault.step_part = static_cast<double>(random() % kNumParts) / kNumParts;
    fault.choice = random();
    faults.push_back(fault);
  }
  return faults;
}

}  // namespace megatron
