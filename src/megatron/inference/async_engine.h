// An engine with a thread that steps it. The ranks that run a model together each have one:
//
//   AsyncEngine engine(model, {}, {.axis = rank.model});
//   if (!engine.is_leader()) return engine.wait();
//   UpdateStream text = engine.stream({.prompt = ids});
//
// To change weights, each rank has a thread that calls update_weights(), beside the one that waits:
//
//   const auto update = [&] { reload_weights(loaded, root, step); };
//   std::thread updater([&] { engine.update_weights(update); });
#pragma once

#include <functional>

#include "megatron/inference/engine.h"
#include "megatron/inference/request_server.h"

namespace megatron {

/// A server that runs requests with a model (request_server.h says which functions are
/// thread-safe).
class AsyncEngine final : public RequestServer {
 public:
  /// Like the constructor of Engine, but EngineOptions::clock is overwritten: deadlines are on
  /// ServingRanks::clock. Collective over the ranks.
  explicit AsyncEngine(const ModelRunner& model, const EngineOptions& options = {},
                       const ServingRanks& ranks = {});
  ~AsyncEngine() override { stop(); }

  /// Calls `update`, which changes the weights (such as by reload_weights()), in the engine's
  /// thread between two steps, and waits for it. Requests stay, with their tokens so far; their
  /// caches are computed again. If it throws, so does this function, and the engine has failed.
  /// Collective over the ranks: it blocks until one thread of every rank has called it, which is
  /// not the one that is in wait().
  void update_weights(std::function<void()> update);

  EngineLoad load() const override;

 private:
  void apply(ServingCommand command) override;
  bool step() override;
  void apply_update();
  void note_load();

  mutable std::mutex load_mutex_;
  EngineLoad load_;  ///< guarded by load_mutex_
  Engine engine_;
  std::function<void()> update_;  ///< that waits to be called; guarded by mutex_
};

}  // namespace megatron
