// Finds the rank of this process and the number of ranks in the environment variables of its
// launcher: torchrun, Slurm, MPI, Kubernetes or `megatron launch`. It only reads variables;
// parallel/rendezvous.h connects the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace megatron {

/// The position of this process among the ranks of a run.
struct LaunchEnvironment {
  std::int64_t rank = 0, world_size = 1;
  std::int64_t local_rank = 0, local_world_size = 1;  ///< among the ranks on this host
  std::int64_t node_rank = 0, num_nodes = 1;
  /// Host on which rank 0 (or the launcher's agent) runs the store; empty for one process.
  std::string master_addr;
  std::int64_t master_port = 0;
  std::string source = "one process";  ///< name of the launcher, for the start-up report
  bool agent_store = false;            ///< the launcher hosts the store; rank 0 is a client too
  std::int64_t restart_count = 0;      ///< number of restarts so far
  std::int64_t max_restarts = 0;       ///< largest number of restarts; 0 if the launcher sets none
  std::string run_id;                  ///< the launcher's name of the run; may be empty
  std::string job_token;  ///< secret that ranks show to the store of rank 0; empty: none is asked
  /// Under `megatron launch`: where the launcher of this host serves the store, and the numeric
  /// address of this host for others ("" if it is the only one).
  std::string launcher_addr, own_addr;
  std::int64_t launcher_port = 0;
  /// Under `megatron launch`: a pipe on which a rank reports that another rank caused its failure.
  std::optional<int> root_cause_pipe;
  /// Under `megatron launch` with --inprocess-restart: the connection over which this process may
  /// become a rank of the next start (control/rank_link.h).
  std::optional<int> process_link;
};

/// Returns the value of an environment variable, or nullopt if it is not set.
using GetEnv = std::function<std::optional<std::string>(const std::string& name)>;
GetEnv process_environment();

/// Variables that `megatron launch` sets in its ranks: how often they were started before, where
/// its store is, and the address of this host for others.
inline constexpr const char* kLaunchRestartVariable = "MEGATRON_LAUNCH_RESTART_COUNT";
inline constexpr const char *kLaunchStoreAddrVariable = "MEGATRON_LAUNCH_STORE_ADDR",
                            *kLaunchStorePortVariable = "MEGATRON_LAUNCH_STORE_PORT",
                            *kLaunchOwnAddrVariable = "MEGATRON_LAUNCH_OWN_ADDR";
/// Variable with the secret of the run, which must be equal on every rank. `megatron launch` on one
/// host sets it to a random text.
inline constexpr const char* kJobTokenVariable = "MEGATRON_JOB_TOKEN";
/// Variable that `megatron launch` sets in its ranks: the value of --max-restarts.
inline constexpr const char* kLaunchMaxRestartsVariable = "MEGATRON_LAUNCH_MAX_RESTARTS";
/// Variable that `megatron launch` sets in its ranks: the descriptor of root_cause_pipe.
inline constexpr const char* kLaunchCauseVariable = "MEGATRON_LAUNCH_CAUSE_PIPE";
/// Variable that `megatron launch` sets in its ranks: the descriptor of process_link.
inline constexpr const char* kLaunchLinkVariable = "MEGATRON_LAUNCH_PROCESS_LINK";

/// Detects the launcher from its variables. The first that applies wins: `megatron launch`,
/// torchrun, RANK and WORLD_SIZE (PyTorchJob), Open MPI's mpirun, a Slurm step, PMIx, MPICH or
/// Intel MPI, an indexed job of Kubernetes, PET_*; otherwise one process. An inner launcher wins
/// over an outer one, such as mpirun inside a Slurm allocation. Throws a UserError if variables are
/// malformed or contradict each other, or if there are several ranks and the address of rank 0 is
/// unknown.
LaunchEnvironment find_launch_environment(const GetEnv& variables = process_environment());

}  // namespace megatron
