#include "megatron/parallel/transport/failure_watch.h"

#include <algorithm>
#include <exception>

#include "megatron/base/machine.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr const char* kFailureKey = "failure";
constexpr const char* kAskedKey = "who holds up everybody";
constexpr milliseconds kInterval{200};
constexpr milliseconds kAnswerTime{3'000};      ///< for ranks on other hosts to answer
constexpr milliseconds kOthersQuestion{6'000};  ///< for the failure of the rank that asked first
constexpr milliseconds kLastPatience{5'000};    ///< for the store, once something has failed

std::string answer_key(std::int64_t rank) { return "states/" + std::to_string(rank); }

}  // namespace

FailureWatch::FailureWatch(StoreTalk& talk, std::shared_ptr<RankBoard> board, Options options)
    : talk_(talk), board_(std::move(board)), options_(std::move(options)), thread_([this] { watch(); }) {
  board_->set_inquiry([this](const std::vector<std::int64_t>& missing, RankStates& states) { ask(missing, states); });
}

/// After a failure the thread may be asking a store that is silent: its call ends soon.
FailureWatch::~FailureWatch() {
  if (board_->failed() || std::uncaught_exceptions() > 0) talk_.set_patience(kLastPatience);
  board_->set_inquiry(nullptr);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FailureWatch::guard(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(std::move(cancel));
}

void FailureWatch::tell() {
  try {
    if (!board_->failed()) return;
    talk_.set_patience(kLastPatience);
    if (!talk_.has(kFailureKey)) talk_.set(kFailureKey, board_->failure());
  } catch (const std::exception&) {
    // The store has gone with its host; the others notice that by themselves.
  }
}

/// A rank's groups end before rank 0 ends the store, so a store that is lost meanwhile is a failure.
void FailureWatch::look_at_store() {
  try {
    if (talk_.has(kFailureKey)) return board_->fail(talk_.get(kFailureKey));
    if (!has_answered_ && talk_.has(kAskedKey)) answer();
  } catch (const std::exception& error) {
    board_->fail(error.what());
  }
}

/// Waits of channels do not look at the clock themselves.
void FailureWatch::look_at_waits() {
  const std::vector<std::int64_t> missing = board_->waits().overdue(options_.rank, options_.timeout);
  if (!missing.empty()) board_->fail(report_hang(*board_, {options_.rank, missing, options_.timeout}));
}

/// For all ranks of this host, since some may not be able to.
void FailureWatch::answer() {
  RankStates states = board_->states();
  for (auto& [rank, state] : states) state.host = host_name();
  talk_.set(answer_key(options_.rank), write_states(states));
  has_answered_ = true;
}

void FailureWatch::ask(const std::vector<std::int64_t>& missing, RankStates& states) {
  try {
    ask_store(missing, states);
  } catch (const std::exception& error) {
    board_->fail(error.what());  // nobody comes together without the store
  }
}

void FailureWatch::ask_store(const std::vector<std::int64_t>& missing, RankStates& states) {
  talk_.set_patience(kLastPatience);
  const bool asks_first = talk_.claim(kAskedKey, std::to_string(options_.rank));
  answer();  // also to the rank that asked first
  if (!asks_first) {
    AwakeTimer timer;
    while (!board_->failed() && !talk_.has(kFailureKey) && timer.elapsed() < kOthersQuestion) std::this_thread::sleep_for(kInterval / 4);
    if (talk_.has(kFailureKey)) return board_->fail(talk_.get(kFailureKey));
  }
  for (std::vector<std::int64_t> unknown = unknown_ranks(missing, states); !unknown.empty(); unknown = unknown_ranks(missing, states)) {
    if (await_answers(unknown, states)) continue;
    for (const std::int64_t rank : unknown_ranks(missing, states)) states[rank].kind = RankState::Kind::silent;
  }
}

/// Whether, of each of the ranks, it or a neighbour has told its state. A failure that another rank tells of meanwhile is the board's too.
bool FailureWatch::await_answers(const std::vector<std::int64_t>& ranks, RankStates& states) {
  const auto first_of = [&](std::int64_t rank) { return options_.first_of[static_cast<std::size_t>(rank)]; };
  for (AwakeTimer timer; timer.elapsed() < kAnswerTime; std::this_thread::sleep_for(kInterval / 4)) {
    if (!board_->failed() && talk_.has(kFailureKey)) board_->fail(talk_.get(kFailureKey));
    if (board_->failed()) return false;
    for (std::int64_t other = 0; other < static_cast<std::int64_t>(options_.first_of.size()); ++other) {
      const bool knows = std::ranges::any_of(ranks, [&](std::int64_t rank) { return first_of(rank) == first_of(other) && !states.contains(rank); });
      if (knows && talk_.has(answer_key(other))) states.merge(read_states(talk_.get(answer_key(other))));
    }
    if (std::ranges::all_of(ranks, [&](std::int64_t rank) { return states.contains(rank); })) return true;
  }
  return false;
}

void FailureWatch::cancel_all() {
  std::vector<std::function<void()>> cancels;
  {
    const std::lock_guard lock(mutex_);
    cancels = cancels_;
  }
  for (const auto& cancel : cancels) cancel();
}

void FailureWatch::watch() {
  while (true) {
    if (!board_->failed()) look_at_store();
    if (!board_->failed()) look_at_waits();
    if (board_->failed()) break;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kInterval, [this] { return ending_; })) return;
  }
  tell();
  cancel_all();
}

}  // namespace megatron
