// Implements `megatron launch … -- <command>`: starts the ranks of this host, and restarts them
// after failures that a restart can fix.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <utility>

#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"
#include "megatron/base/exit_codes.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/machine.h"
#include "megatron/cli/command.h"
#include "megatron/cli/launch_supervisor.h"
#include "megatron/cli/script_names.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/launch_options.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/control/agent.h"
#include "megatron/control/first_failure.h"
#include "megatron/control/store_client.h"

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

/// Reports a mistake in the command once, instead of once from every rank. Throws what the command
/// would throw with `world_size` ranks.
void check_command(const std::vector<std::string>& args, std::int64_t world_size) {
  const Command* command = find_command(args[0]);
  if (!command) refuse_command(args[0]);
  if (command->name == "launch")
    throw UserError(
        {"the command after --", "must not be launch itself", "write another command there"});
  if (command->check) command->check(std::span(args).subspan(1), world_size);
}

/// Returns why the command cannot run on so many hosts, or "". An error of any kind is a reason: it
/// must not end a run that continues with other hosts.
std::string refusal(const LaunchPlan& plan, std::int64_t hosts) {
  try {
    check_command(plan.command, hosts * plan.ranks_per_node);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Throws what the command would throw, unless it fits some number of hosts.
void check_command(const LaunchPlan& plan) {
  for (std::int64_t hosts = plan.max_nodes; hosts > plan.min_nodes; --hosts) {
    if (refusal(plan, hosts).empty()) return;
  }
  check_command(plan.command, plan.min_nodes * plan.ranks_per_node);
}

/// Returns lines that name the failure; "" if there was none, or the rank has printed its message.
std::string failure_text(const LaunchResult& result, const std::vector<std::string>& last_lines) {
  if (result.code == 0 || result.code == 2 || result.stopped_on_request) return "";
  std::string text =
      "megatron launch: rank " + std::to_string(*result.rank) + " " + result.description;
  if (!result.cause.empty()) return text + ", because " + result.cause + "\n";
  text += last_lines.empty() ? "\n" : "; the last lines of its stderr:\n";
  for (const std::string& line : last_lines) text += "  " + line;
  return text;
}

/// What the command's own settings ask of its launcher.
struct CommandTraits {
  bool resumes = false;         ///< the command continues where it was stopped
  bool loses_steps = false;     ///< it trains and saves nothing
  std::int64_t max_starts = 1;  ///< of one process, see --inprocess-restart
};

CommandTraits traits_of(const LaunchPlan& plan) {
  if (plan.command[0] != "pretrain") return {};
  try {
    const RunConfig run =
        read_run(std::span(plan.command).subspan(1), plan.min_nodes * plan.ranks_per_node);
    const Settings& settings = run.options.settings;
    const CheckpointConfig& checkpoint = *settings.checkpoint;
    CommandTraits traits{.resumes = !checkpoint.save.empty() && checkpoint.save == checkpoint.load,
                         .loses_steps = checkpoint.save.empty() && !settings.training->skip_train};
    if (settings.parallel->inprocess_restart)
      traits.max_starts = settings.parallel->inprocess_max_iterations.value_or(INT64_MAX);
    return traits;
  } catch (const UserError&) {
    return {};
  }
}

/// Returns the secret of the run. On one host that is a new one, which keeps other users of the
/// host out. Several hosts need one that all launchers are given.
std::string job_token(const LaunchPlan& plan) {
  if (const char* given = std::getenv(kJobTokenVariable); given != nullptr && *given != '\0')
    return given;
  if (plan.max_nodes > 1) return "";
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += format("%08x", random());
  ::setenv(kJobTokenVariable, token.c_str(), 1);
  return token;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// Time for the other launchers to read that the run has ended.
constexpr std::chrono::seconds kDrainLimit{5};

/// Time for the reader of stderr to take the launcher's last messages.
constexpr int kMessageMilliseconds = 5'000;
/// Why a run has ended, for the launchers of other hosts.
constexpr const char* kEndedBySignal = "a signal has ended the launcher of the first host";

/// Thrown when a signal ends the launcher while it waits for other hosts, or none can join.
struct WaitEnded {
  int code;
};

class Launch {
 public:
  Launch(const LaunchPlan& plan, const CommandTraits& traits)
      : plan_(plan),
        traits_(traits),
        can_grow_(plan.min_nodes < plan.max_nodes && traits_.resumes),
        agent_(Agent::join(agent_options())) {}
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch() {
    end_kept(std::move(kept_));
    finish_messages();
  }

  int run() {
    if (plan_.min_nodes < plan_.max_nodes && !can_grow_)
      std::cerr << "megatron launch: warning: hosts that come later are not taken in, because the "
                   "run has no --save and --load of one folder to continue from"
                << std::endl;
    if (plan_.max_restarts > 0 && traits_.loses_steps)
      std::cerr
          << "megatron launch: warning: a restart begins again at the first iteration, because "
             "the run has no --save"
          << std::endl;
    if (find_command(plan_.command[0])->check) preload_engine();  // for all ranks at once
    std::int64_t done = 0;                                        // rounds
    while (wait_for_round(done)) {
      const Decision round = agent_->decision();
      done = round.round;
      own_ = {};
      const std::optional<std::int64_t> place = agent_->place();
      if (!place) {
        end_kept(std::exchange(kept_, {}));  // others need the memory
        continue;
      }
      if (round.kind != Decision::Kind::run) {  // the round ends before this host has begun it
        own_ = {.code = 128 + SIGTERM, .is_consequence = true, .stopped_on_request = true};
        agent_->report_end(done, own_);
        continue;
      }
      if (round.round > 1) announce(round);
      run_once(round, *place);
    }
    const int code = report_end();
    if (code == 0) check_output();
    return code;
  }

 private:
  AgentOptions agent_options() {
    AgentOptions options{
        .master_addr = plan_.master_addr,
        .master_port = plan_.master_port,
        .token = job_token(plan_),
        .run_name = plan_.run_name,
        .node_rank = plan_.node_rank,
        .num_ranks = plan_.ranks_per_node,
        .progress = [](const std::string& line) { std::cerr << line << std::endl; },
        .is_cancelled =
            [this] {
              if (end_requested()) throw WaitEnded{exit_code_after(end_signal_)};
              return false;
            }};
    options.membership = {.min_hosts = plan_.min_nodes,
                          .max_hosts = plan_.max_nodes,
                          .max_restarts = plan_.max_restarts,
                          .last_call = milliseconds_of(plan_.last_call_s),
                          .join_timeout = milliseconds_of(plan_.join_s),
                          .settle_time = milliseconds_of(plan_.settle_s),
                          .end_timeout = milliseconds_of(plan_.grace_s + 45),
                          .can_grow = can_grow_};
    if (plan_.min_nodes < plan_.max_nodes)
      options.membership.refusal = [this](std::int64_t hosts) { return refusal(plan_, hosts); };
    return options;
  }

  bool end_requested() {
    while (const auto signal = signals_.take()) {
      if (*signal != SIGCHLD && *signal != SIGUSR2) end_signal_ = *signal;
    }
    return end_signal_ != 0;
  }

  /// Prints why the run has ended, unless that is known here, and returns the exit code.
  int report_end() {
    agent_->drain_followers(kDrainLimit);
    const Decision& end = agent_->decision();
    // Its own rank has printed the failure, or report() the line that names the cause.
    const bool is_known = end.code == 0 || end.reason.empty() || end.reason == own_.description ||
                          (end_signal_ != 0 && end.reason == kEndedBySignal) ||
                          (own_.is_consequence && end.code != 2);
    const char* kind = is_code_of_stop(end.code) ? "the run has stopped: " : "error: ";
    if (!is_known) err_.add("megatron launch: " + (kind + end.reason) + "\n");
    if (plan_.max_nodes > 1 && end.code != 0 && end.restarts > 1)
      err_.add("megatron launch: hosts whose failures ended a start: " + end.blame + "\n");
    return end.code;
  }

  /// Waits for the round after `done`. Returns false when the run has ended.
  bool wait_for_round(std::int64_t done) {
    const auto start = std::chrono::steady_clock::now();
    for (double next_line_s = 6;;) {
      agent_->serve();
      const Decision& decision = agent_->decision();
      if (decision.kind == Decision::Kind::end) return false;
      // The leader now knows how the ranks of this host have ended.
      const bool is_over = decision.kind == Decision::Kind::wait || decision.round > done;
      const bool has_saved = own_.code == 0 || own_.is_consequence;  // as far as this host knows
      if (is_leaving_ && is_over) throw WaitEnded{has_saved ? 128 + SIGTERM : own_.code};
      const bool has_begun = decision.kind != Decision::Kind::wait && decision.round > done;
      if (has_begun) return true;
      if (end_requested() && !agent_->end_run(exit_code_after(end_signal_), kEndedBySignal))
        throw WaitEnded{exit_code_after(end_signal_)};
      if (const std::string reason = agent_->lost_reason(); !reason.empty()) {
        err_.add("megatron launch: error: the launcher of the first host, at " +
                 Endpoint{plan_.master_addr, plan_.master_port}.text() + ", is lost: " + reason +
                 "\n  fix: look at that host, and start the launchers again\n");
        // A rank that this launcher has ended does not say what has failed.
        const bool is_ended = own_.code == 0 || (own_.is_consequence && own_.code > 128);
        throw WaitEnded{is_ended ? 1 : own_.code};
      }
      const double waited_s =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (waited_s >= next_line_s && !agent_->waiting_text().empty()) {
        err_.add("megatron launch: waiting: " + agent_->waiting_text() +
                 format(" (%.0f s)\n", waited_s));
        next_line_s = waited_s < 60 ? waited_s + 6 : waited_s + 60;
      }
      std::array<pollfd, 3> events{{{agent_->descriptor(), POLLIN, 0},
                                    {signals_.descriptor(), POLLIN, 0},
                                    {err_.descriptor(), POLLOUT, 0}}};
      ::poll(events.data(), err_.is_empty() ? 2 : 3, 200);
      if (events[2].revents != 0) err_.write_some();
    }
  }

  void announce(const Decision& round) {
    std::string text = "megatron launch: start " + std::to_string(round.round);
    if (round.is_restart)
      text = "megatron launch: restart " + std::to_string(round.restarts) + " of " +
             std::to_string(plan_.max_restarts);
    if (plan_.max_nodes > 1)
      text +=
          " on " + std::to_string(round.num_hosts) + (round.num_hosts == 1 ? " host" : " hosts");
    text += ": " + round.reason;
    if (plan_.max_nodes > 1) {
      if (round.is_restart && round.restarts > 1) text += " (failures so far: " + round.blame + ")";
    }
    err_.add(text + "\n");
  }

  /// Writes the messages that are left, unless their reader is blocked.
  void finish_messages() {
    pollfd event{err_.descriptor(), POLLOUT, 0};
    while (!err_.is_empty() && ::poll(&event, 1, kMessageMilliseconds) > 0) err_.write_some();
  }

  static HostResult host_result(const LaunchResult& result) {
    HostResult host{.code = result.code,
                    .is_consequence = !result.cause.empty(),
                    .was_signalled = result.stop_requested,
                    .stopped_on_request = result.stopped_on_request,
                    .since_failure = result.since_failure};
    if (result.rank)
      host.description = "rank " + std::to_string(*result.rank) + " on " + host_name() + " " +
                         result.description +
                         (result.cause.empty() ? "" : ", because " + result.cause);
    return host;
  }

  /// Throws a UserError if output of the ranks could not be written.
  void check_output() const {
    if (out_.lost_by() != 0) throw_file_error("write", "standard output", out_.lost_by());
    if (err_.lost_by() != 0) throw_file_error("write", "standard error", err_.lost_by());
  }

  /// Runs the ranks of this host, and reports how they ended before it writes the last of their
  /// output: its reader may be blocked.
  void run_once(const Decision& round, std::int64_t node_rank) {
    causes_.clear();
    std::vector<RankProcess> processes = start_ranks({.plan = plan_,
                                                      .node_rank = node_rank,
                                                      .num_nodes = round.num_hosts,
                                                      .restart_count = round.round - 1,
                                                      .signal_mask = signals_.saved_mask(),
                                                      .store_addr = agent_->store_address(),
                                                      .store_port = agent_->store_port(),
                                                      .own_addr = agent_->own_address(),
                                                      .root_cause_pipe = causes_.write_end(),
                                                      .standard_output = &out_,
                                                      .standard_error = &err_,
                                                      .keeps_processes = traits_.max_starts > 1},
                                                     std::exchange(kept_, {}));
    const auto num_kept = std::ranges::count_if(
        processes, [](const RankProcess& process) { return process.num_starts > 1; });
    if (num_kept > 0)
      err_.add("megatron launch: " + std::to_string(num_kept) + " of " +
               std::to_string(processes.size()) + " ranks of this host keep their processes\n");
    Supervisor supervisor(std::move(processes),
                          {.grace_s = plan_.grace_s, .max_starts = traits_.max_starts},
                          {signals_, out_, err_, causes_, *agent_});
    const LaunchResult result = supervisor.run();
    is_leaving_ = is_leaving_ || result.is_leaving;
    own_ = host_result(result);
    agent_->report_end(round.round, own_);
    err_.add(failure_text(result, supervisor.finish_output(end_signal_)));
    kept_ = supervisor.take_kept();
  }

  const LaunchPlan& plan_;
  const CommandTraits traits_;
  const bool can_grow_;
  SignalQueue signals_;
  int end_signal_ = 0;
  bool is_leaving_ = false;  ///< the run continues without this host
  HostResult own_;           ///< how the ranks of this host ended in the last round
  OutputQueue out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  RootCausePipe causes_;
  std::vector<RankProcess> kept_;  ///< processes that wait for the next start
  const std::unique_ptr<Agent> agent_;
};

}  // namespace

const FieldSet& launch_fields() { return launch_table().set(); }

int run_launch(std::span<const std::string> args) {
  LaunchPlan plan = read_launch_plan(args, process_environment(),
                                     {.num_cpus = num_cpus(), .num_gpus = num_gpus()});
  plan.command = with_script_translated(std::move(plan.command));
  check_command(plan);
  std::cerr << plan.notes;
  const CommandTraits traits = traits_of(plan);
  if (traits.max_starts > 1 && plan.max_restarts == 0)
    throw UserError({"--inprocess-restart", "is given, but nothing is started again",
                     "give --max-restarts N before the --"});
  std::signal(SIGPIPE, SIG_IGN);
  raise_open_file_limit();
  try {
    return Launch(plan, traits).run();
  } catch (const WaitEnded& end) {
    return end.code;
  }
}

}  // namespace megatron
