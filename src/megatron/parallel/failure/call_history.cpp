#include "megatron/parallel/failure/call_history.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <string_view>

#include "megatron/base/checksum.h"
#include "megatron/base/wall_clock.h"
#include "megatron/parallel/failure/shared_value.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxDims = 6;
constexpr std::int8_t kNoType = -1;

template <std::size_t n>
void copy_text(std::array<char, n>& to, std::string_view text) {
  std::ranges::copy(text.substr(0, n - 1), to.begin());
}

}  // namespace

std::string describe_with_place(const CallRecord& call) {
  return std::string(name_of(call.operation)) + " '" + call.what + "' on " + call.axis +
         (call.layer.empty() ? "" : " in " + call.layer);
}

std::vector<std::int64_t> awaited_ranks(const CallRecord& call, std::int64_t rank,
                                        const std::vector<std::int64_t>& group) {
  if (is_message(call.operation)) return {call.peer};
  std::vector<std::int64_t> others = group;
  std::erase(others, rank);
  return others;
}

bool is_part_of(const CallRecord& made, const CallRecord& call, std::int64_t rank) {
  if (made.group != call.group || made.group_number < call.group_number) return false;
  if (!is_message(call.operation)) return !is_message(made.operation);
  return is_message(made.operation) && made.operation != call.operation && made.peer == rank;
}

struct CallHistory::Note {
  std::uint64_t group, group_number;
  std::int64_t peer;
  double entered_s;
  std::array<std::int64_t, kMaxDims> shape;
  std::int8_t operation, scalar_type, num_dims, is_uneven;
  std::array<char, 20> axis;
  std::array<char, 56> what;
  std::array<char, 64> layer;
};

/// `number` is 0 while the slot is being written, so that readers can detect a torn read.
struct CallHistory::Slot {
  std::atomic<std::uint64_t> number;
  std::atomic<double> left_s;
  std::atomic<std::uint64_t> is_awaited;
  SharedValue<Note> note;
};

struct CallHistory::RankCalls {
  std::atomic<std::uint64_t> num_calls;
  std::array<Slot, kNumCalls> slots;
  Slot& slot(std::uint64_t number) { return slots[number % kNumCalls]; }
};

std::size_t CallHistory::bytes(std::int64_t world_size) {
  return static_cast<std::size_t>(world_size) * sizeof(RankCalls);
}

CallHistory::RankCalls& CallHistory::calls_of(std::int64_t rank) const {
  return reinterpret_cast<RankCalls*>(memory_)[rank];
}

std::uint64_t CallHistory::add_group(const std::string& axis,
                                     const std::vector<std::int64_t>& ranks) {
  const std::uint64_t group = checksum(std::as_bytes(std::span(ranks)));
  const std::lock_guard lock(mutex_);
  groups_.try_emplace(checksum_hex(group), CallGroup{axis, ranks});
  return group;
}

CallGroups CallHistory::groups() const {
  const std::lock_guard lock(mutex_);
  return groups_;
}

std::uint64_t CallHistory::enter(const Place& place, const CommCall& call) {
  const at::Tensor& tensor = call.in.defined() ? call.in : call.out;
  Note note{.group = place.group,
            .group_number = place.group_number,
            .peer = place.peer,
            .entered_s = unix_seconds(),
            .shape = {},
            .operation = static_cast<std::int8_t>(call.operation),
            .scalar_type = kNoType,
            .num_dims = 0,
            .is_uneven = static_cast<std::int8_t>(call.is_uneven()),
            .axis = {},
            .what = {},
            .layer = {}};
  if (tensor.defined()) {
    const std::size_t dims = std::min(kMaxDims, tensor.sizes().size());
    std::copy_n(tensor.sizes().begin(), dims, note.shape.begin());
    note.num_dims = static_cast<std::int8_t>(dims);
    note.scalar_type = static_cast<std::int8_t>(tensor.scalar_type());
  }
  copy_text(note.axis, call.axis);
  copy_text(note.what, call.what);
  if (call.layer) copy_text(note.layer, *call.layer);

  RankCalls& calls = calls_of(place.rank);
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = calls.num_calls.load() + 1;
  Slot& slot = calls.slot(number);
  slot.number.store(0);
  slot.left_s.store(0);
  slot.is_awaited.store(place.is_awaited ? 1 : 0);
  slot.note.write(note);
  slot.number.store(number);
  calls.num_calls.store(number);
  return number;
}

void CallHistory::await(std::int64_t rank, std::uint64_t number) {
  Slot& slot = calls_of(rank).slot(number);
  const std::lock_guard lock(mutex_);
  if (slot.number.load() == number) slot.is_awaited.store(1);
}

void CallHistory::leave(std::int64_t rank, std::uint64_t number) {
  Slot& slot = calls_of(rank).slot(number);
  const std::lock_guard lock(mutex_);
  if (slot.number.load() == number) slot.left_s.store(unix_seconds());
}

std::vector<CallRecord> CallHistory::read(std::int64_t rank) const {
  RankCalls& calls = calls_of(rank);
  const std::uint64_t last = calls.num_calls.load();
  std::vector<CallRecord> records;
  for (std::uint64_t number = last < kNumCalls ? 1 : last - kNumCalls + 1; number <= last;
       ++number) {
    const Slot& slot = calls.slot(number);
    const std::uint64_t before = slot.number.load();
    const auto note = slot.note.read();
    const double left_s = slot.left_s.load();
    const bool is_awaited = slot.is_awaited.load() != 0;
    if (!note || before != number || slot.number.load() != number) continue;
    CallRecord record{.number = number,
                      .group = checksum_hex(note->group),
                      .group_number = note->group_number,
                      .operation = static_cast<CommOperation>(note->operation),
                      .axis = note->axis.data(),
                      .what = note->what.data(),
                      .layer = note->layer.data(),
                      .type = {},
                      .shape = {},
                      .is_uneven = note->is_uneven != 0,
                      .is_awaited = is_awaited,
                      .peer = note->peer,
                      .entered_s = note->entered_s,
                      .left_s = left_s};
    if (note->scalar_type != kNoType)
      record.type = c10::toString(static_cast<c10::ScalarType>(note->scalar_type));
    record.shape.assign(note->shape.begin(), note->shape.begin() + note->num_dims);
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace megatron
