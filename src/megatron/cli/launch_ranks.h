// Starts the ranks of one host as child processes. The launcher forks them after it has loaded
// LibTorch, so that no rank loads it again. With --inprocess-restart, a process whose rank ended
// because another one failed is kept for the next start.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/cli/launch_output.h"
#include "megatron/config/launch_options.h"
#include "megatron/control/rank_link.h"

namespace megatron {

/// One rank as a child process of the launcher.
struct RankProcess {
  std::int64_t rank = 0, local_rank = 0;
  pid_t pid = -1;
  bool is_running = false;
  bool is_kept = false;  ///< its rank has ended, and the process waits for the next start
  std::int64_t num_starts = 1;
  int stop_signal = 0;  ///< while the process is stopped: the signal that stopped it
  RankLink link;        ///< open while the process may be kept
  /// Its output streams; null if the rank writes to the launcher's terminal directly.
  std::unique_ptr<RankStream> out, err;
};

/// The options that all ranks of one start share.
struct RankStartOptions {
  const LaunchPlan& plan;
  std::int64_t node_rank = 0, num_nodes = 1;  ///< of this round
  std::int64_t restart_count = 0;
  sigset_t signal_mask;    ///< signal mask of the ranks
  std::string store_addr;  ///< where the ranks of this host find the store
  std::int64_t store_port = 0;
  std::string own_addr;      ///< numeric address of this host for others; "" if it is the only one
  int root_cause_pipe = -1;  ///< on which ranks report that another rank made them fail
  OutputQueue* standard_output = nullptr;
  OutputQueue* standard_error = nullptr;
  bool keeps_processes = false;
};

/// Starts every rank of this host: in one of the `kept` processes, or in a new one. Each runs the
/// plan's command and exits with its exit code. Ranks are killed if the launcher dies.
std::vector<RankProcess> start_ranks(const RankStartOptions& start, std::vector<RankProcess> kept);

/// Ends processes that are kept, and waits for their ends.
void end_kept(std::vector<RankProcess> kept);

}  // namespace megatron
