#include "megatron/inference/async_engine.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

EngineOptions with_clock(EngineOptions options, std::function<double()> clock) {
  options.clock = std::move(clock);
  return options;
}

}  // namespace

AsyncEngine::AsyncEngine(const ModelRunner& model, const EngineOptions& options,
                         const ServingRanks& ranks)
    : RequestServer(ranks), engine_(model, with_clock(options, [this] { return now_s(); })) {
  start();
}

void AsyncEngine::update_weights(std::function<void()> update) {
  std::unique_lock lock(mutex_);
  MEGATRON_CHECK(!update_, "two threads call update_weights()");
  update_ = std::move(update);
  if (is_leader()) commands_.push_back({.kind = ServingCommand::Kind::update_weights});
  changed_.notify_all();
  changed_.wait(lock, [&] { return !update_ || ended_; });
  if (std::exchange(update_, nullptr)) std::rethrow_exception(ended_);
}

void AsyncEngine::apply(ServingCommand command) {
  if (command.kind == ServingCommand::Kind::update_weights) {
    apply_update();
  } else if (command.kind == ServingCommand::Kind::cancel) {
    engine_.cancel(command.request);  // without effect if it ended before the leader knew
  } else {
    command.text.id = command.request;
    try {
      engine_.add_request(std::move(command.text));
    } catch (const UserError&) {
      tell({.update = {.request = command.request}, .error = std::current_exception()});
    }
  }
}

bool AsyncEngine::step() {
  if (!engine_.is_idle()) {
    for (Update& update : engine_.step()) {
      const std::exception_ptr error = std::exchange(update.error, nullptr);
      tell({.update = std::move(update), .error = error});
    }
  }
  note_load();
  return !engine_.is_idle();
}

void AsyncEngine::note_load() {
  const Scheduler& scheduler = engine_.scheduler();
  const BlockPool& pool = scheduler.pool();
  const auto used = static_cast<double>(pool.num_blocks() - pool.num_available());
  const std::lock_guard lock(load_mutex_);
  load_ = {.num_running = scheduler.num_running(),
           .num_waiting = scheduler.num_waiting(),
           .cache_usage = used / static_cast<double>(pool.num_blocks())};
}

EngineLoad AsyncEngine::load() const {
  const std::lock_guard lock(load_mutex_);
  return load_;
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

}  // namespace megatron
