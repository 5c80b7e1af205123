// Runs requests in a background thread; any thread may add them. On several ranks the first one
// leads: it takes the requests and gets their updates. In each round it tells the other ranks which
// requests were added and cancelled since the last round, so that all ranks do the same.
//
//   UpdateStream text = server.stream({.prompt = ids});
//   while (const std::optional<Update> update = text.next()) ...
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "megatron/base/monotonic_clock.h"
#include "megatron/inference/text_request.h"
#include "megatron/parallel/axis.h"

namespace megatron {

/// Identifies a request at its server. Numbers are never used again.
using RequestId = std::int64_t;

/// An update of a request, or the error that has ended it.
struct News {
  Update update = {};  ///< with the RequestId; after an error nothing else
  std::exception_ptr error = {};
  bool is_last() const { return error || update.is_last; }
};
/// Takes the news of a request. The serving thread calls it: it must not throw, nor wait for news.
using OnNews = std::function<void(const News& news)>;

/// How busy a server is.
struct EngineLoad {
  std::int64_t num_running = 0, num_waiting = 0;  ///< texts
  double cache_usage = 0;                         ///< blocks of the KV cache in use, of all
};

/// What all ranks do at the beginning of a round.
struct ServingCommand {
  enum class Kind : std::uint8_t { add, cancel, update_weights };
  Kind kind = Kind::add;
  RequestId request = 0;
  std::int64_t replica = 0;  ///< the replica that serves the request; for ReplicaSet
  TextRequest text = {};     ///< the request to add, with Kind::add
};

/// What the leader begins a round with.
struct ServingRound {
  std::vector<ServingCommand> commands = {};
  double now_s = 0;
  bool stops = false;
};

/// The ranks that run a server together. One is the leader: the first of the axis.
struct ServingRanks {
  /// All ranks that compute a pass together: Rank::replica, which without cp is Rank::model. Where
  /// experts are divided over dp (etp·ep > tp·cp), these are Rank::expert_model.
  Axis axis = {};
  c10::Device device{c10::kCPU};  ///< of the communicators
  /// The leader begins a round at least this often, so that the others wait for less than the
  /// timeout of their communicators, and a lost rank is noticed.
  std::chrono::milliseconds heartbeat{1000};
  /// Returns seconds. Deadlines are on the leader's clock.
  std::function<double()> clock = monotonic_seconds;
};

class UpdateStream;

/// Base class of servers: AsyncEngine (async_engine.h) runs a model, ReplicaSet (replicas.h)
/// several replicas of it. The public functions are thread-safe.
///
/// If a round fails, the server and all its requests fail with the same error; that of a lost rank
/// names it. While the server runs, the communicators of its ranks belong to its thread.
class RequestServer {
 public:
  virtual ~RequestServer() = default;

  /// Adds a request, which gets its updates, or a UserError when it cannot be served, or what made
  /// the server fail. Throws that if it has failed before. Only the leader has requests.
  RequestId add_request(TextRequest request, OnNews on_news);
  /// Adds a request whose updates are read from a stream (update_stream.h).
  UpdateStream stream(TextRequest request);
  /// Ends a request if it has not ended. Its OnNews is not called again after a call under way.
  void cancel(RequestId request);
  /// Waits until no request is left. Throws what made the server fail.
  void drain();

  bool is_leader() const { return ranks_.axis.rank == 0; }
  /// Waits until the server has stopped, as the leader decides. Throws what made it fail.
  void wait();
  /// Waits likewise, at most for `limit`. Returns whether the server has stopped.
  bool wait_for(std::chrono::milliseconds limit);
  /// The leader stops all ranks after the present round; requests that are left get an error. The
  /// others wait for that, unless they unwind an exception. The first thing that a destructor does;
  /// without effect the second time.
  void stop();
  /// Returns the load after the last step: of a set of replicas, that of this rank's.
  virtual EngineLoad load() const { return {}; }

 protected:
  explicit RequestServer(ServingRanks ranks) : ranks_(std::move(ranks)) {}
  /// Starts the thread: the last thing that a constructor does.
  void start();

  // The thread calls these. On the leader, sets which replica a command is for:
  virtual void route(ServingCommand& /*command*/) {}
  virtual void apply(ServingCommand command) = 0;
  /// Ends a round. Returns whether the next one is to begin without waiting for a command.
  virtual bool step() = 0;
  /// Hands on news, unless the request has ended or this is not the leader.
  void tell(const News& news);
  /// Returns the leader's time at the beginning of the round.
  double now_s() const { return now_s_; }

  const ServingRanks ranks_;
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::vector<ServingCommand> commands_;  ///< for the next round
  std::exception_ptr ended_;              ///< null while requests are served
  bool is_stopping_ = false;

 private:
  void run() noexcept;
  /// Returns what the leader begins. Collective over the ranks.
  ServingRound next_round(bool is_busy);
  void end(const std::exception_ptr& failure);

  std::map<RequestId, OnNews> listeners_;
  RequestId next_request_ = 0;
  bool is_leaving_ = false, has_failed_ = false;
  double now_s_ = 0;  ///< the thread's own
  const int num_exceptions_ = std::uncaught_exceptions();
  std::thread thread_;
};

}  // namespace megatron
