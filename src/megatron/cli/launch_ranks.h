// The ranks of one host as child processes: forked by the launcher after it has loaded LibTorch, so
// that no rank loads it again.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/base/listening_socket.h"
#include "megatron/cli/launch_output.h"
#include "megatron/config/launch_options.h"

namespace megatron {

struct RankProcess {
  std::int64_t rank = 0, local_rank = 0;
  pid_t pid = -1;
  bool is_running = false;
  int stop_signal = 0;  ///< the signal, while the process is stopped
  std::unique_ptr<RankStream> out,
      err;  ///< null where the rank writes to the launcher's terminal itself
};

/// What the ranks of one start have in common.
struct RankStartOptions {
  const LaunchPlan& plan;
  std::int64_t restart_count = 0;
  sigset_t signal_mask;               ///< which the ranks shall have
  ListeningSocket* socket = nullptr;  ///< the store's, handed to rank 0; null on hosts without it
  int root_cause_pipe = -1;  ///< where a rank tells that another one is the cause of its end
  OutputQueue* standard_output = nullptr;
  OutputQueue* standard_error = nullptr;
};

/// Forks every rank of this host; each runs the plan's command and ends with its exit code. It dies
/// with the launcher.
std::vector<RankProcess> start_ranks(const RankStartOptions& start);

}  // namespace megatron
