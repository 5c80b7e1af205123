#include "megatron/inference/async_engine.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/inference/messages.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

AsyncEngineOptions with_clock(AsyncEngineOptions options) {
  if (!options.engine.clock) options.engine.clock = monotonic_seconds;
  return options;
}

EngineOptions with_clock(EngineOptions options, std::function<double()> clock) {
  options.clock = std::move(clock);
  return options;
}

}  // namespace

AsyncEngine::AsyncEngine(const ModelRunner& model, AsyncEngineOptions options)
    : options_(with_clock(std::move(options))),
      engine_(model, with_clock(options_.engine, [this] { return now_s_; })),
      thread_([this] { run(); }) {}

AsyncEngine::~AsyncEngine() {
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = !is_leader() && std::uncaught_exceptions() > num_exceptions_;
  }
  stop();
  thread_.join();
}

void AsyncEngine::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ != nullptr; });
  if (has_failed_) std::rethrow_exception(ended_);
}

void AsyncEngine::update_weights(std::function<void()> update) {
  std::unique_lock lock(mutex_);
  MEGATRON_CHECK(!update_, "two threads call update_weights()");
  update_ = std::move(update);
  if (is_leader()) commands_.push_back({.kind = Command::Kind::update_weights});
  changed_.notify_all();
  changed_.wait(lock, [&] { return !update_ || ended_; });
  if (update_) std::rethrow_exception(ended_);
}

void AsyncEngine::run() noexcept {
  try {
    while (!must_leave() && run_round()) {
    }
    end(
        std::make_exception_ptr(std::runtime_error("the engine was stopped before the request "
                                                   "ended")));
  } catch (const std::exception& error) {
    if (options_.on_failure) options_.on_failure(error.what());
    {
      const std::lock_guard lock(mutex_);
      has_failed_ = true;
    }
    end(std::current_exception());
  }
}

bool AsyncEngine::run_round() {
  Round round = next_round();
  now_s_ = round.now_s;
  for (Command& command : round.commands) apply(std::move(command));
  if (round.stops || engine_.is_idle()) return !round.stops;
  for (Update& update : engine_.step()) {
    const auto request = requests_.find(update.request);
    update.request = request->second;
    if (update.finished) requests_.erase(request);
    tell(update);
  }
  return true;
}

AsyncEngine::Round AsyncEngine::next_round() {
  Round round;
  if (is_leader()) {
    round.commands = take(engine_.is_idle() ? options_.heartbeat : std::chrono::milliseconds(0));
    round.stops = is_stopping();
    round.now_s = options_.engine.clock();
  }
  if (options_.ranks.size == 1) return round;
  const ObjectGroup group{options_.ranks, options_.device};
  const std::vector<double> head =
      broadcast_numbers(group,
                        {static_cast<double>(std::ssize(round.commands)), round.now_s,
                         static_cast<double>(round.stops)},
                        "engine step");
  if (head[0] > 0) {
    const std::string bytes = is_leader() ? to_bytes(round.commands) : "";
    round.commands = from_bytes<std::vector<Command>>(broadcast_strings(group, {bytes}).front());
  }
  round.now_s = head[1];
  round.stops = head[2] != 0;
  return round;
}

void AsyncEngine::apply(Command command) {
  const RequestId request = command.request;
  switch (command.kind) {
    case Command::Kind::add:
      try {
        requests_.emplace(engine_.add_request(std::move(command.text)), request);
      } catch (const UserError&) {
        tell({.request = request}, std::current_exception());
      }
      return;
    case Command::Kind::cancel:
      // It may have ended before the leader knew.
      if (const auto found = std::ranges::find(requests_, request,
                                               &std::pair<const SequenceId, RequestId>::second);
          found != requests_.end()) {
        engine_.cancel(found->first);
        requests_.erase(found);
      }
      return;
    case Command::Kind::update_weights:
      apply_update();
  }
}

void AsyncEngine::apply_update() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return update_ || is_stopping_; });
  MEGATRON_CHECK(update_, "the leader updates the weights, and this rank does not");
  const std::function<void()> update = update_;
  lock.unlock();
  {
    const at::NoGradGuard no_gradients;
    update();
  }
  engine_.recompute_all();
  lock.lock();
  update_ = nullptr;
  changed_.notify_all();
}

bool AsyncEngine::must_leave() {
  const std::lock_guard lock(mutex_);
  return is_leaving_;
}

}  // namespace megatron
