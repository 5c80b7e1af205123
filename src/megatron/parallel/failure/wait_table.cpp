#include "megatron/parallel/failure/wait_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "megatron/parallel/failure/shared_value.h"

namespace megatron {

struct WaitTable::Note {
  std::int32_t has_waits, num_missing;
  std::array<std::int32_t, 22> missing;
  char call[160];
};

struct WaitTable::Entry {
  std::atomic<std::int32_t> num_blocked;
  std::atomic<std::int64_t> iteration;  ///< The iteration plus one; 0: none.
  SharedValue<Note> note;
};

std::size_t WaitTable::bytes(std::int64_t world_size) {
  return static_cast<std::size_t>(world_size) * sizeof(Entry);
}

WaitTable::Entry& WaitTable::entry(std::int64_t rank) const {
  return reinterpret_cast<Entry*>(memory_)[rank];
}

void WaitTable::note_iteration(std::int64_t rank, std::int64_t iteration) {
  entry(rank).iteration.store(iteration + 1);
}

std::int64_t WaitTable::iteration(std::int64_t rank) const {
  return entry(rank).iteration.load() - 1;
}

void WaitTable::add_blocked(std::int64_t rank, int change) {
  entry(rank).num_blocked.fetch_add(change);
}

WaitTable::Wait::Wait(WaitTable& waits, std::int64_t rank, const CommCall& call,
                      std::vector<std::int64_t> missing)
    : waits_(waits), rank_(rank), call_(call), missing_(std::move(missing)) {
  {
    const std::lock_guard lock(waits_.mutex_);
    waits_.waits_[rank_].push_back(this);
  }
  waits_.publish(rank_);
}

WaitTable::Wait::~Wait() {
  const std::lock_guard lock(waits_.mutex_);
  std::list<Wait*>& all = waits_.waits_[rank_];
  all.remove(this);
  if (all.empty()) waits_.entry(rank_).note.write(Note{});
}

void WaitTable::Wait::update(std::vector<std::int64_t> missing) {
  const std::lock_guard lock(waits_.mutex_);
  missing_ = std::move(missing);
}

void WaitTable::publish(std::int64_t rank) {
  const std::lock_guard lock(mutex_);
  const std::list<Wait*>& all = waits_[rank];
  Note note{};
  if (!all.empty()) {
    note.has_waits = 1;
    const std::string call = describe_with_place(all.front()->call_);
    std::memcpy(note.call, call.data(), std::min(call.size(), sizeof(note.call) - 1));
    for (const Wait* wait : all) {
      for (const std::int64_t missing : wait->missing_) {
        if (static_cast<std::size_t>(note.num_missing) == note.missing.size()) break;
        note.missing[static_cast<std::size_t>(note.num_missing++)] =
            static_cast<std::int32_t>(missing);
      }
    }
  }
  entry(rank).note.write(note);
}

std::vector<std::int64_t> WaitTable::overdue(std::int64_t rank, std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> missing;
  for (Wait* wait : waits_[rank]) {
    if (wait->timer_.elapsed() >= limit && missing.empty()) missing = wait->missing_;
  }
  return missing;
}

RankWait WaitTable::read(std::int64_t rank) const {
  const Entry& from = entry(rank);
  RankWait wait{.iteration = iteration(rank)};
  if (const auto note = from.note.read()) {
    wait.is_waiting = note->has_waits != 0 && from.num_blocked.load() > 0;
    wait.call = note->call;
    wait.missing.assign(note->missing.begin(), note->missing.begin() + note->num_missing);
  }
  return wait;
}

}  // namespace megatron
