// An engine with a thread that steps it, which serves requests of any thread (request_queue.h).
//
// The ranks that run a model together each have one. The first of them leads: it takes requests.
// Before each step it tells the others which were added and cancelled since the last one, and all
// make the same calls of their engines.
//
//   AsyncEngine engine(model, {.ranks = rank.model});
//   if (!engine.is_leader()) return engine.wait();
//   TextStream text = engine.stream({.prompt = ids});
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <thread>

#include "megatron/inference/request_queue.h"
#include "megatron/parallel/axis.h"

namespace megatron {

struct AsyncEngineOptions {
  /// The leader's clock is that of all ranks; null: monotonic_seconds().
  EngineOptions engine = {};
  Axis ranks = {};  ///< those that run the model together, such as Rank::model
  c10::Device device{c10::kCPU};
  /// The leader calls the others at least this often, so that they wait for less than the timeout
  /// of their communicators and a lost rank is noticed.
  std::chrono::milliseconds heartbeat{1000};
  /// Gets the message of what made this rank fail, in the engine's thread. Where the program may go
  /// on without it, it should tell the other ranks (Communicators::abort()).
  std::function<void(const std::string& reason)> on_failure = {};
};

/// The communicators of `ranks` belong to the engine's thread as long as it runs. When a step
/// fails, so do all requests and the engine: the error of a lost rank names it.
class AsyncEngine final : public RequestQueue {
 public:
  /// As for Engine. Collective over the ranks.
  explicit AsyncEngine(const ModelRunner& model, AsyncEngineOptions options = {});
  /// On the leader, stops all ranks after the present step; requests that are left get an error. On
  /// the others, waits for that, unless it unwinds an exception.
  ~AsyncEngine() override;

  bool is_leader() const { return options_.ranks.rank == 0; }
  /// Waits until the leader stops this engine. Throws what made it fail.
  void wait();
  /// Calls `update`, which changes the weights, in the engine's thread between two steps, and waits
  /// for it. Requests stay, and their tokens so far; their caches are computed again. If it throws,
  /// so does this function, and the engine has failed. One thread of each rank calls it. Collective
  /// over the ranks.
  void update_weights(std::function<void()> update);

 private:
  /// What happens before and in a step.
  struct Round {
    std::vector<Command> commands = {};
    double now_s = 0;
    bool stops = false;
  };
  void run() noexcept;
  /// Returns whether there is another round.
  bool run_round();
  /// Returns the leader's next round. Collective over the ranks.
  Round next_round();
  void apply(Command command);
  void apply_update();
  bool must_leave();

  AsyncEngineOptions options_;
  double now_s_ = 0;  ///< of the round
  Engine engine_;
  std::map<SequenceId, RequestId> requests_;  ///< in the engine
  const int num_exceptions_ = std::uncaught_exceptions();
  // Guarded by mutex_.
  std::function<void()> update_;  ///< that waits to be called
  bool has_failed_ = false, is_leaving_ = false;
  std::thread thread_;
};

}  // namespace megatron
