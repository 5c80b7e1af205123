// Implements `megatron launch … -- <command>`: starts the ranks of this host, and restarts them
// after failures that a restart can fix.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <random>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/listening_socket.h"
#include "megatron/base/machine.h"
#include "megatron/cli/command.h"
#include "megatron/cli/launch_supervisor.h"
#include "megatron/cli/script_names.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/launch_options.h"
#include "megatron/config/print_config.h"

namespace megatron {
namespace {

/// Returns the number of GPUs in /dev that CUDA_VISIBLE_DEVICES allows. It does not initialize
/// CUDA, because CUDA does not work after a fork.
std::int64_t num_gpus() {
  std::int64_t devices = 0;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(devices))) ++devices;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return devices;
  const std::string_view list(visible);
  if (list.empty() || list.starts_with("-")) return 0;
  return std::min<std::int64_t>(devices, 1 + std::ranges::count(list, ','));
}

/// Reports a mistake in the command once, instead of once from every rank.
void check_command(const std::vector<std::string>& args, std::int64_t world_size) {
  const Command* command = find_command(args[0]);
  if (!command) refuse_command(args[0]);
  if (command->name == "launch")
    throw UserError(
        {"the command after --", "must not be launch itself", "write another command there"});
  if (command->check) command->check(std::span(args).subspan(1), world_size);
}

/// Returns whether a restart is useless: the ranks succeeded, were signalled, or would fail again.
bool is_final(const LaunchResult& result) {
  return result.code == 0 || result.code == 2 || result.code == 143 || result.was_signalled;
}

void report(const LaunchResult& result) {
  if (result.code == 0 || result.code == 2 || result.was_signalled)
    return;  // there was no failure, or the rank has printed its message
  std::cerr << "megatron launch: rank " << *result.rank << " " << result.description;
  if (!result.cause.empty()) {
    std::cerr << ", because another rank failed: " << result.cause << std::endl;
    return;
  }
  if (!result.last_lines.empty()) std::cerr << "; the last lines of its stderr:";
  std::cerr << "\n";
  for (const std::string& line : result.last_lines) std::cerr << "  " << line;
  std::cerr << std::flush;
}

/// Gives the ranks of one host a secret that keeps other users of the host out of their store. The
/// ranks of several hosts need one that all launchers are given.
void set_job_token(const LaunchPlan& plan) {
  const char* given = std::getenv(kJobTokenVariable);
  if (plan.num_nodes > 1 || (given != nullptr && *given != '\0')) return;
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += format("%08x", random());
  ::setenv(kJobTokenVariable, token.c_str(), 1);
}

class Launch {
 public:
  explicit Launch(const LaunchPlan& plan) : plan_(plan) {}

  int run() {
    for (std::int64_t restart = 0;; ++restart) {
      const LaunchResult result = run_once(restart);
      report(result);
      if (is_final(result) || restart == plan_.max_restarts) {
        if (result.code == 0) check_output();
        return result.code;
      }
      std::cerr << "megatron launch: restart " << restart + 1 << " of " << plan_.max_restarts
                << std::endl;
    }
  }

 private:
  /// Throws a UserError if output of the ranks could not be written.
  void check_output() const {
    if (out_.lost_by() != 0) throw_file_error("write", "standard output", out_.lost_by());
    if (err_.lost_by() != 0) throw_file_error("write", "standard error", err_.lost_by());
  }

  LaunchResult run_once(std::int64_t restart) {
    std::optional<ListeningSocket> socket;
    const bool is_one_host = plan_.num_nodes == 1 && plan_.master_addr.starts_with("127.");
    if (plan_.node_rank == 0)
      socket.emplace(ListenOptions{.port = plan_.master_port,
                                   .loopback_only = is_one_host,
                                   .address_of = plan_.master_addr});
    if (restart == 0) preload_engine();
    RootCausePipe causes;
    std::vector<RankProcess> processes = start_ranks({.plan = plan_,
                                                      .restart_count = restart,
                                                      .signal_mask = signals_.saved_mask(),
                                                      .socket = socket ? &*socket : nullptr,
                                                      .root_cause_pipe = causes.write_end(),
                                                      .standard_output = &out_,
                                                      .standard_error = &err_});
    socket.reset();
    return Supervisor(std::move(processes), plan_.grace_s, {signals_, out_, err_, causes}).run();
  }

  const LaunchPlan& plan_;
  SignalQueue signals_;
  OutputQueue out_{STDOUT_FILENO}, err_{STDERR_FILENO};
};

}  // namespace

const FieldSet& launch_fields() { return launch_table().set(); }

int run_launch(std::span<const std::string> args) {
  LaunchPlan plan = read_launch_plan(args, process_environment(),
                                     {.num_cpus = num_cpus(), .num_gpus = num_gpus()});
  plan.command = with_script_translated(std::move(plan.command));
  check_command(plan.command, plan.world_size());
  std::signal(SIGPIPE, SIG_IGN);
  set_job_token(plan);
  return Launch(plan).run();
}

}  // namespace megatron
