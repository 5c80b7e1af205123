// Who this process is among the ranks of a run, found in the environment that its launcher left:
// torchrun, Slurm, MPI, Kubernetes or `megatron launch`. Pure arithmetic over variables; nobody is
// spoken to (parallel/rendezvous.h does that).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace megatron {

struct LaunchEnvironment {
  std::int64_t rank = 0, world_size = 1;
  std::int64_t local_rank = 0,
               local_world_size = 1;  ///< among the ranks that were started on this host
  std::int64_t node_rank = 0, num_nodes = 1;
  std::string master_addr;  ///< where rank 0 (or the launcher's agent) hosts the store; empty for
                            ///< one process
  std::int64_t master_port = 0;
  std::string source = "one process";  ///< in words, for the start-up report
  bool agent_store = false;            ///< the launcher hosts the store: rank 0 too is a client
  std::int64_t restart_count = 0;      ///< how often the launcher has started the ranks again
  std::int64_t max_restarts = 0;       ///< how often it may, as far as it says so
  std::string run_id;                  ///< the launcher's name of the run, "" when it has none
  std::optional<int> root_cause_pipe;  ///< under `megatron launch`: where a rank tells that another
                                       ///< one is the cause of its end
  std::optional<int>
      listening_socket;  ///< rank 0 under `megatron launch`: the store's port, already open
};

/// The value of an environment variable; nothing when it is not set.
using GetEnv = std::function<std::optional<std::string>(const std::string& name)>;
GetEnv process_environment();

/// Set by `megatron launch` in its ranks: how often they have been started again, and the
/// descriptor of the store's socket in rank 0.
inline constexpr const char* kLaunchRestartVariable = "MEGATRON_LAUNCH_RESTART_COUNT";
inline constexpr const char* kLaunchSocketVariable = "MEGATRON_LAUNCH_LISTENING_SOCKET";
/// Set beside it: --max-restarts.
inline constexpr const char* kLaunchMaxRestartsVariable = "MEGATRON_LAUNCH_MAX_RESTARTS";
/// The descriptor of the pipe for LaunchEnvironment::root_cause_pipe.
inline constexpr const char* kLaunchCauseVariable = "MEGATRON_LAUNCH_CAUSE_PIPE";

/// The first that applies of: `megatron launch`, torchrun, RANK and WORLD_SIZE (PyTorchJob), mpirun
/// of Open MPI, a Slurm step, PMIx, MPICH and Intel MPI, an indexed job of Kubernetes, PET_*; else
/// one process. A launcher inside another wins: mpirun inside a Slurm allocation. UserError when
/// variables are malformed or contradict each other, and when several ranks do not know where rank
/// 0 is.
LaunchEnvironment find_launch_environment(const GetEnv& variables = process_environment());

}  // namespace megatron
