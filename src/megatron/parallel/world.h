// The processes of a run as one: they meet over a store, learn who is where, and end together. One
// rank's failure is printed once, by rank 0, and ends all within seconds.
//
//   int run_pretrain(args) {
//     return run_rank("pretrain", [&](World& world) {
//       const RunConfig run = read_run(args);  // a UserError here ends every rank with exit code 2
//       world.join({.timeout = …, .settings = …});
//       const auto communicators = world.make_communicators(world.process_options());
//       world.on_failure([&](const std::string& reason) { communicators->abort(reason); });
//       …
//       world.on_failure(nullptr);
//       return code;
//     });
//   }
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "megatron/config/launch_environment.h"
#include "megatron/config/run_command.h"
#include "megatron/parallel/failure/failure_notice.h"
#include "megatron/parallel/process_communicators.h"
#include "megatron/parallel/rendezvous/rendezvous.h"

namespace c10d {
class Store;
}

namespace megatron {

class World {
 public:
  /// `command` stands in messages. Nothing happens yet.
  World(LaunchEnvironment environment, std::string command);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  const LaunchEnvironment& environment() const;

  /// Collective over all ranks; returns at once for one process. UserError when the store cannot be
  /// opened or reached, when ranks are missing or were started with other settings; PeerFailed when
  /// another rank has failed.
  void join(const RendezvousOptions& options);
  const RunHosts& hosts() const;
  /// What make_process_communicators is to know about this rank; device and transport are the
  /// caller's.
  ProcessOptions process_options() const;

  /// The communicators of this rank; null for one process. Collective over all ranks. UserError as
  /// make_process_communicators.
  std::unique_ptr<Communicators> make_communicators(const ProcessOptions& options) const;

  /// The run's store, for any thread; null for one process. Its keys belong to this start of the
  /// run alone.
  c10::intrusive_ptr<c10d::Store> store() const;

  /// What ends this rank's waiting when another rank has failed: called once, from another thread,
  /// at once when that has happened already. nullptr takes it back, and returns when no call is
  /// under way. A rank that does not end within seconds after the call is ended.
  void on_failure(std::function<void(const std::string& reason)> callback);

  /// A failure that stands there must end this rank: one that has not ended some seconds later is
  /// ended by force, with a message.
  void set_failure_notice(std::shared_ptr<FailureNotice> notice);

  /// The peaceful end: rank 0, which hosts the store, returns when all others have come here too.
  /// PeerFailed when one has failed instead, UserError when some do not come within the timeout.
  void leave();

  /// The end after a failure of this rank: tells the others unless one of them was the first, and
  /// sees to it that rank 0 has printed the cause. The exit code for this rank.
  int end_in_failure(const std::exception_ptr& exception);
  /// The same for a failure whose cause has been printed.
  int end_in_failure(int code);

 private:
  class State;
  std::unique_ptr<State> state_;
};

/// Runs the body of a command as one rank of the run and returns its exit code. What it throws ends
/// every rank: with exit code 2 for a UserError, else 1; rank 0 prints it as `megatron <command>:
/// error: …`. So does an exit code of its own other than 0 and those of a polite stop (above 128).
int run_rank(const std::string& command, const std::function<int(World&)>& body,
             const LaunchEnvironment& environment = find_launch_environment());

}  // namespace megatron
