#include "megatron/parallel/world.h"

#include "megatron/config/command_line.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/world_state.h"

namespace megatron {
namespace {

constexpr const char* kRunPrefix = "run";  ///< Separates the run's keys from the rendezvous' keys.

/// Returns whether the exception is the consequence of another rank's failure.
bool is_consequence(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const CommError&) {
    return true;
  } catch (const StoreLost&) {
    return true;
  } catch (const PeerFailed&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

World::World(LaunchEnvironment environment, std::string command)
    : state_(std::make_unique<State>(std::move(environment), std::move(command))) {}
World::~World() = default;
const LaunchEnvironment& World::environment() const { return state_->environment(); }
const RunHosts& World::hosts() const { return state_->hosts(); }
ProcessOptions World::process_options() const {
  return {.rank = environment().rank,
          .world_size = environment().world_size,
          .host = hosts().own_identity,
          .address = hosts().own_address,
          .timeout = state_->timeout(),
          .start = hosts().start};
}

std::unique_ptr<Communicators> World::make_communicators(const ProcessOptions& options) const {
  return environment().world_size > 1 ? make_process_communicators(*store(), options) : nullptr;
}

void World::join(const RendezvousOptions& options) { state_->join(options); }
void World::on_failure(std::function<void(const std::string&)> callback) {
  state_->on_failure(std::move(callback));
}
void World::set_failure_notice(std::shared_ptr<FailureNotice> notice) {
  state_->set_failure_notice(std::move(notice));
}
void World::leave() { state_->leave(); }

std::optional<RunStore> World::store() const {
  if (!state_->store()) return {};
  return state_->store()->with_prefix(kRunPrefix);
}

int World::end_in_failure(const std::exception_ptr& exception) {
  const CommandFailure failure = command_failure(exception);
  return state_->end_in_failure({.code = failure.code, .text = failure.text},
                                is_consequence(exception), false);
}

int World::end_in_failure(int code) {
  return state_->end_in_failure({.code = code, .text = {}}, false, true);
}

int run_rank(const std::string& command, const std::function<int(World&)>& body,
             const LaunchEnvironment& environment) {
  World world(environment, command);
  if (environment.world_size == 1) return body(world);
  try {
    const int code = body(world);
    const bool is_clean_exit = code == 0 || code > 128;
    if (!is_clean_exit) return world.end_in_failure(code);
    world.leave();
    return code;
  } catch (const HelpRequested&) {
    if (environment.rank == 0) throw;
    return 0;
  } catch (...) {
    return world.end_in_failure(std::current_exception());
  }
}

}  // namespace megatron
