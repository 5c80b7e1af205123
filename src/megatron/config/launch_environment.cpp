#include "megatron/config/launch_environment.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/launch_variables.h"
#include "megatron/config/slurm_variables.h"

namespace megatron {
namespace {

constexpr std::int64_t kDefaultPort = 29500;  ///< the default of torchrun

/// Derives a port from the name of the job, so that it is the same on every rank. It lies below the
/// ephemeral ports (32768 and above).
std::int64_t port_from(std::uint64_t number) {
  return 15000 + static_cast<std::int64_t>(number % 15000);
}

std::int64_t port_from(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return port_from(hash ^ (hash >> 32));
}

/// Reads MASTER_ADDR and MASTER_PORT, which have precedence over the launcher's own variables.
void read_master(const LaunchVariables& variables, LaunchEnvironment& environment,
                 const std::string& prefix = "") {
  if (const auto port = variables.number(prefix + "MASTER_PORT")) environment.master_port = *port;
  if (const auto address = variables.text(prefix + "MASTER_ADDR")) {
    const Endpoint found = master_endpoint(*address, prefix + "MASTER_ADDR");
    environment.master_addr = found.host;
    if (found.port > 0) environment.master_port = found.port;
  }
}

/// Assumes equal numbers of consecutive ranks per host, which is the default of launchers. The
/// rendezvous finds the actual placement.
void count_nodes(LaunchEnvironment& environment) {
  environment.local_world_size = std::max(environment.local_world_size, environment.local_rank + 1);
  environment.node_rank = environment.rank / environment.local_world_size;
  environment.num_nodes =
      (environment.world_size + environment.local_world_size - 1) / environment.local_world_size;
}

void require(bool condition, const std::string& names, const std::string& problem,
             const std::string& fix) {
  if (!condition) throw UserError({"environment variables " + names + ": " + problem, "", fix});
}

void check_consistent(const LaunchEnvironment& environment, const LaunchVariables& variables) {
  const auto pair = [](std::int64_t rank, std::int64_t size) {
    return "rank " + std::to_string(rank) + " of " + std::to_string(size);
  };
  const std::string of = " (" + environment.source + ")",
                    fix = "correct them, or unset them for a run of one process";
  require(environment.rank < environment.world_size, "of the rank" + of,
          pair(environment.rank, environment.world_size), fix);
  require(environment.local_rank < environment.local_world_size, "of the local rank" + of,
          "local " + pair(environment.local_rank, environment.local_world_size), fix);
  require(environment.local_world_size <= environment.world_size, "of the world's size" + of,
          std::to_string(environment.local_world_size) + " ranks on this host, " +
              std::to_string(environment.world_size) + " in all",
          fix);
  require(environment.node_rank < environment.num_nodes, "of the node" + of,
          "node " + pair(environment.node_rank, environment.num_nodes), fix);
  if (environment.world_size == 1) return;
  require(!environment.master_addr.empty(), "MASTER_ADDR" + of,
          "not set, so the host of rank 0 is unknown", "set MASTER_ADDR to the host of rank 0");
  require(environment.master_port >= 1 && environment.master_port <= 65535, "MASTER_PORT" + of,
          environment.master_port == 0 && !variables.first_text({"PET_MASTER_PORT", "MASTER_PORT"})
              ? "not set"
              : "must lie between 1 and 65535, got " + std::to_string(environment.master_port),
          "set MASTER_PORT to the same free port on every rank, such as " +
              std::to_string(kDefaultPort));
}

/// Reads RANK, WORLD_SIZE and related variables, which `megatron launch`, torchrun and a PyTorchJob
/// set. A PyTorchJob runs one process per pod and sets no LOCAL_RANK.
std::optional<LaunchEnvironment> from_rank_variables(const LaunchVariables& variables) {
  if (!variables.has("RANK") || !variables.has("WORLD_SIZE")) return std::nullopt;
  LaunchEnvironment found;
  found.rank = *variables.number("RANK");
  found.world_size = *variables.number("WORLD_SIZE");
  found.local_rank = variables.number("LOCAL_RANK").value_or(0);
  found.local_world_size =
      variables.first_number({"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}).value_or(found.local_rank + 1);
  require(found.local_world_size > 0 && found.world_size > 0, "WORLD_SIZE and LOCAL_WORLD_SIZE",
          "must be at least 1, got 0", "correct them");
  require(found.local_rank < found.local_world_size, "LOCAL_RANK and LOCAL_WORLD_SIZE",
          std::to_string(found.local_rank) + " of " + std::to_string(found.local_world_size),
          "correct them");
  count_nodes(found);
  if (const auto node = variables.number("GROUP_RANK")) found.node_rank = *node;
  if (const auto nodes = variables.number("GROUP_WORLD_SIZE")) found.num_nodes = *nodes;
  read_master(variables, found);
  if (const auto restarts = variables.number(kLaunchRestartVariable)) {
    found.source = "megatron launch";
    found.restart_count = *restarts;
    found.max_restarts = variables.number(kLaunchMaxRestartsVariable).value_or(0);
    if (const auto pipe = variables.number(kLaunchCauseVariable))
      found.root_cause_pipe = static_cast<int>(*pipe);
    if (const auto link = variables.number(kLaunchLinkVariable))
      found.process_link = static_cast<int>(*link);
    found.launcher_addr = variables.text(kLaunchStoreAddrVariable).value_or("");
    found.launcher_port = variables.number(kLaunchStorePortVariable).value_or(0);
    found.own_addr = variables.text(kLaunchOwnAddrVariable).value_or("");
  } else if (variables.has("TORCHELASTIC_RUN_ID")) {
    found.source = "torchrun";
    found.restart_count = variables.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
    found.max_restarts = variables.number("TORCHELASTIC_MAX_RESTARTS").value_or(0);
    found.run_id = *variables.text("TORCHELASTIC_RUN_ID");
    found.agent_store = variables.is_true("TORCHELASTIC_USE_AGENT_STORE");
  } else {
    found.source = variables.has("LOCAL_RANK") ? "RANK and WORLD_SIZE" : "PyTorchJob";
  }
  return found;
}

std::optional<std::string> first_slurm_node(const LaunchVariables& variables) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (const auto list = variables.text(name)) return expand_node_list(*list, name).front();
  }
  return std::nullopt;
}

/// Completes the environment of an MPI launcher. One host needs no address; with several hosts,
/// Slurm's variables or MASTER_ADDR name the first.
LaunchEnvironment from_mpi(const LaunchVariables& variables, LaunchEnvironment found,
                           const std::string& job_name) {
  require(found.world_size > 0, "of " + found.source, "0 processes", "correct them");
  count_nodes(found);
  found.master_port = job_name.empty() ? kDefaultPort : port_from(job_name);
  if (found.local_world_size == found.world_size) {
    found.master_addr = "127.0.0.1";
  } else if (const auto node = first_slurm_node(variables)) {
    found.master_addr = *node;
  }
  read_master(variables, found);
  require(found.world_size == 1 || !found.master_addr.empty(), "MASTER_ADDR (" + found.source + ")",
          "not set, and the ranks are on several hosts",
          "set it with mpirun -x MASTER_ADDR=<host of rank 0> … (or -env MASTER_ADDR …)");
  return found;
}

std::optional<LaunchEnvironment> from_open_mpi(const LaunchVariables& variables) {
  const auto rank = variables.number("OMPI_COMM_WORLD_RANK");
  if (!rank) return std::nullopt;
  LaunchEnvironment found{.rank = *rank, .source = "Open MPI"};
  found.world_size = variables.required_number("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  found.local_rank = variables.number("OMPI_COMM_WORLD_LOCAL_RANK").value_or(0);
  found.local_world_size = variables.number("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(1);
  return from_mpi(variables, found,
                  variables.first_text({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}).value_or(""));
}

/// Returns whether srun started this process. Batch scripts and interactive shells are steps of one
/// process, regardless of --ntasks.
bool is_slurm_rank(const LaunchVariables& variables) {
  constexpr std::int64_t kFirstSpecialStep =
      4294967280;  // interactive, batch, extern and pending steps have the highest numbers
  if (!variables.has("SLURM_PROCID")) return false;
  if (const auto step = variables.first_number({"SLURM_STEP_ID", "SLURM_STEPID"}))
    return *step < kFirstSpecialStep;
  return variables.has("SLURM_STEP_NUM_TASKS") || variables.text("ENVIRONMENT") != "BATCH";
}

std::int64_t slurm_local_world_size(const LaunchVariables& variables, std::int64_t node,
                                    std::int64_t world_size, std::int64_t num_nodes) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = variables.text(name);
    if (!text) continue;
    const auto tasks = expand_tasks_per_node(*text, name);
    std::int64_t sum = 0;
    for (const std::int64_t count : tasks) sum += count;
    if (sum == world_size && node < static_cast<std::int64_t>(tasks.size()))
      return tasks[static_cast<std::size_t>(node)];
  }
  return variables.number("SLURM_NTASKS_PER_NODE")
      .value_or((world_size + num_nodes - 1) / num_nodes);
}

std::optional<LaunchEnvironment> from_slurm(const LaunchVariables& variables) {
  if (!is_slurm_rank(variables)) return std::nullopt;
  const std::int64_t world_size =
      variables.first_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}).value_or(1);
  if (world_size <= 1) return LaunchEnvironment{};
  LaunchEnvironment found{
      .rank = *variables.number("SLURM_PROCID"), .world_size = world_size, .source = "Slurm"};
  found.local_rank = variables.required_number("SLURM_LOCALID", "SLURM_PROCID");
  found.num_nodes = std::max<std::int64_t>(
      1, variables.first_number({"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"})
             .value_or(1));
  found.node_rank = variables.number("SLURM_NODEID").value_or(0);
  found.local_world_size =
      slurm_local_world_size(variables, found.node_rank, world_size, found.num_nodes);
  found.restart_count = variables.number("SLURM_RESTART_COUNT").value_or(0);
  const std::int64_t job = variables.first_number({"SLURM_JOB_ID", "SLURM_JOBID"}).value_or(0);
  const std::int64_t step = variables.first_number({"SLURM_STEP_ID", "SLURM_STEPID"}).value_or(0);
  found.run_id = std::to_string(job) + "." + std::to_string(step);
  found.master_port = port_from(static_cast<std::uint64_t>(job + step));
  found.master_addr = first_slurm_node(variables).value_or(found.num_nodes == 1 ? "127.0.0.1" : "");
  read_master(variables, found);
  return found;
}

/// Reads PMIx variables. PMIx provides the world size only through its library, so WORLD_SIZE must
/// be set.
std::optional<LaunchEnvironment> from_pmix(const LaunchVariables& variables) {
  const auto rank = variables.number("PMIX_RANK");
  if (!rank) return std::nullopt;
  LaunchEnvironment found{.rank = *rank, .source = "PMIx"};
  found.world_size = variables.required_number("WORLD_SIZE", "PMIX_RANK");
  found.local_rank = variables.first_number({"LOCAL_RANK", "PMIX_LOCAL_RANK"}).value_or(0);
  found.local_world_size = variables.number("LOCAL_WORLD_SIZE").value_or(found.local_rank + 1);
  return from_mpi(variables, found, variables.text("PMIX_NAMESPACE").value_or(""));
}

std::optional<LaunchEnvironment> from_pmi(const LaunchVariables& variables) {
  const auto rank = variables.number("PMI_RANK");
  if (!rank) return std::nullopt;
  LaunchEnvironment found{.rank = *rank, .source = "MPICH or Intel MPI"};
  found.world_size = variables.required_number("PMI_SIZE", "PMI_RANK");
  found.local_rank = variables.number("MPI_LOCALRANKID").value_or(0);
  found.local_world_size = variables.number("MPI_LOCALNRANKS").value_or(found.local_rank + 1);
  return from_mpi(variables, found, "");
}

/// Reads an indexed job of Kubernetes or the PET_* variables of a TrainJob: one process per pod.
std::optional<LaunchEnvironment> from_kubernetes(const LaunchVariables& variables) {
  const auto index = variables.number("JOB_COMPLETION_INDEX");
  const auto rank = variables.number("PET_NODE_RANK");
  const auto size = variables.first_number({"WORLD_SIZE", "PET_NNODES"});
  if (!(index || rank) || !size) return std::nullopt;
  const std::string processes = variables.text("PET_NPROC_PER_NODE").value_or("1");
  require(processes == "1", "PET_NPROC_PER_NODE",
          processes + " processes per pod, which this process does not start",
          "run `megatron launch -- pretrain …`");
  LaunchEnvironment found{.rank = rank ? *rank : *index,
                          .world_size = *size,
                          .source = index ? "Kubernetes (indexed job)" : "PET_* variables"};
  found.master_port = kDefaultPort;
  read_master(variables, found, "PET_");
  read_master(variables, found);
  count_nodes(found);
  return found;
}

/// Throws a UserError if only one of RANK and WORLD_SIZE is set, because then several ranks were
/// intended.
void refuse_halves(const LaunchVariables& variables) {
  if (variables.has("RANK")) variables.required_number("WORLD_SIZE", "RANK");
  if (variables.number("WORLD_SIZE").value_or(1) > 1)
    variables.required_number("RANK", "WORLD_SIZE");
}

}  // namespace

LaunchEnvironment find_launch_environment(const GetEnv& lookup) {
  const LaunchVariables variables(lookup);
  for (const auto find :
       {from_rank_variables, from_open_mpi, from_slurm, from_pmix, from_pmi, from_kubernetes}) {
    if (auto found = find(variables)) {
      check_consistent(*found, variables);
      found->job_token = variables.text(kJobTokenVariable).value_or("");
      return *found;
    }
  }
  refuse_halves(variables);
  return {};
}

}  // namespace megatron
