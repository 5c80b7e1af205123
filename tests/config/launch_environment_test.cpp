// Tests launch environments with the variables that the launchers really set.
#include "megatron/config/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megatron/base/error.h"
#include "megatron/config/slurm_variables.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Variables = std::map<std::string, std::string>;
using testing::ElementsAre;
using testing::HasSubstr;

LaunchEnvironment found_in(const Variables& variables) {
  return find_launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

std::string error_in(const Variables& variables) {
  return message_of([&] { found_in(variables); });
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

std::string summary(const LaunchEnvironment& e) {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + "/" + std::to_string(b);
  };
  std::string text = e.source + ": rank " + pair(e.rank, e.world_size) + " local " +
                     pair(e.local_rank, e.local_world_size) + " node " +
                     pair(e.node_rank, e.num_nodes);
  if (!e.master_addr.empty()) text += " at " + e.master_addr + ":" + std::to_string(e.master_port);
  if (e.agent_store) text += " agent";
  if (e.restart_count != 0) text += " restart " + std::to_string(e.restart_count);
  if (e.max_restarts != 0) text += " of " + std::to_string(e.max_restarts);
  return text;
}

// The variables that torchrun 2.11 sets in a worker: `torchrun --nnodes 2 --nproc-per-node 4
// --node-rank 1
// --master-addr 10.0.0.1`.
const Variables kTorchrun{{"GROUP_RANK", "1"},
                          {"GROUP_WORLD_SIZE", "2"},
                          {"LOCAL_RANK", "2"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "10.0.0.1"},
                          {"MASTER_PORT", "29500"},
                          {"OMP_NUM_THREADS", "1"},
                          {"RANK", "6"},
                          {"ROLE_NAME", "default"},
                          {"ROLE_RANK", "6"},
                          {"ROLE_WORLD_SIZE", "8"},
                          {"TORCHELASTIC_ERROR_FILE", "error.json"},
                          {"TORCHELASTIC_MAX_RESTARTS", "0"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                          {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                          {"WORLD_SIZE", "8"}};

// `srun --nodes 3 --ntasks 5` inside an allocation of three nodes: the variables of its last task.
const Variables kSlurm{{"SLURM_JOB_ID", "4711"},
                       {"SLURM_JOB_NODELIST", "gpu[08-10]"},
                       {"SLURM_JOB_NUM_NODES", "3"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NNODES", "3"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_NTASKS", "5"},
                       {"SLURM_PROCID", "4"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "gpu[08-10]"},
                       {"SLURM_STEP_NUM_TASKS", "5"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                       {"SLURM_TASKS_PER_NODE", "2(x2),1"}};

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                         {"PMIX_RANK", "1"},
                         {"PMIX_NAMESPACE", "2113994753"},
                         {"OMPI_UNIVERSE_SIZE", "4"},
                         {"PMIX_VERSION", "4.2.2"}};

const Variables kIndexedJob{{"JOB_COMPLETION_INDEX", "2"},
                            {"WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "train-0.train"},
                            {"MASTER_PORT", "29400"}};

struct Example {
  const char* name;
  Variables variables;
  const char* expected;
};

class LaunchEnvironments : public testing::TestWithParam<Example> {};

TEST_P(LaunchEnvironments, AreFound) {
  EXPECT_EQ(summary(found_in(GetParam().variables)), GetParam().expected);
}

const std::vector<Example> kExamples{
    {"nothing", {}, "one process: rank 0/1 local 0/1 node 0/1"},
    {"torchrun", kTorchrun, "torchrun: rank 6/8 local 2/4 node 1/2 at 10.0.0.1:29500 agent"},
    {"torchrun_own_store",
     with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"},
                      {"TORCHELASTIC_RESTART_COUNT", "3"},
                      {"TORCHELASTIC_MAX_RESTARTS", "4"}}),
     "torchrun: rank 6/8 local 2/4 node 1/2 at 10.0.0.1:29500 restart 3 of 4"},
    {"torchrun_one_process",
     with(kTorchrun, {{"RANK", "0"},
                      {"WORLD_SIZE", "1"},
                      {"LOCAL_RANK", "0"},
                      {"LOCAL_WORLD_SIZE", "1"},
                      {"GROUP_RANK", "0"},
                      {"GROUP_WORLD_SIZE", "1"}}),
     "torchrun: rank 0/1 local 0/1 node 0/1 at 10.0.0.1:29500 agent"},
    {"megatron_launch_inside_torchrun",
     with(kTorchrun, {{kLaunchRestartVariable, "1"}, {kLaunchMaxRestartsVariable, "2"}}),
     "megatron launch: rank 6/8 local 2/4 node 1/2 at 10.0.0.1:29500 restart 1 of 2"},
    {"pytorchjob_worker",
     {{"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"MASTER_ADDR", "job-master-0"},
      {"MASTER_PORT", "23456"},
      {"PYTHONUNBUFFERED", "1"}},
     "PyTorchJob: rank 3/4 local 0/1 node 3/4 at job-master-0:23456"},
    {"slurm", kSlurm, "Slurm: rank 4/5 local 0/1 node 2/3 at gpu08:19711"},
    {"slurm_first_task", with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}}),
     "Slurm: rank 0/5 local 0/2 node 0/3 at gpu08:19711"},
    {"slurm_own_master", with(kSlurm, {{"MASTER_ADDR", "10.1.1.8"}, {"MASTER_PORT", "6000"}}),
     "Slurm: rank 4/5 local 0/1 node 2/3 at 10.1.1.8:6000"},
    {"slurm_few_variables",
     {{"SLURM_PROCID", "3"},
      {"SLURM_NTASKS", "4"},
      {"SLURM_LOCALID", "1"},
      {"SLURM_NODEID", "1"},
      {"SLURM_NNODES", "2"},
      {"SLURM_JOB_NODELIST", "n[01-04,7]"},
      {"SLURM_JOB_ID", "12"}},
     "Slurm: rank 3/4 local 1/2 node 1/2 at n01:15012"},
    {"slurm_allocation_without_srun",
     {{"SLURM_JOB_ID", "4711"},
      {"SLURM_NTASKS", "8"},
      {"SLURM_JOB_NODELIST", "n[1-2]"},
      {"SLURM_NNODES", "2"}},
     "one process: rank 0/1 local 0/1 node 0/1"},
    {"slurm_batch_script",
     {{"ENVIRONMENT", "BATCH"},
      {"SLURM_JOB_ID", "4711"},
      {"SLURM_PROCID", "0"},
      {"SLURM_NTASKS", "8"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "0"},
      {"SLURM_NNODES", "2"},
      {"SLURM_JOB_NODELIST", "n[1-2]"}},
     "one process: rank 0/1 local 0/1 node 0/1"},
    {"slurm_interactive_step",
     with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_PROCID", "0"}}),
     "one process: rank 0/1 local 0/1 node 0/1"},
    {"slurm_one_task",
     with(kSlurm, {{"SLURM_NTASKS", "1"},
                   {"SLURM_STEP_NUM_TASKS", "1"},
                   {"SLURM_PROCID", "0"},
                   {"PMIX_RANK", "0"}}),
     "one process: rank 0/1 local 0/1 node 0/1"},
    {"ipv6_master", with(kTorchrun, {{"MASTER_ADDR", "[fd00::1]"}}),
     "torchrun: rank 6/8 local 2/4 node 1/2 at fd00::1:29500 agent"},
    {"mpirun_one_host", kOpenMpi, "Open MPI: rank 1/4 local 1/4 node 0/1 at 127.0.0.1:20365"},
    {"mpirun_two_hosts",
     with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "3"},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"MASTER_ADDR", "a"},
                     {"MASTER_PORT", "7"}}),
     "Open MPI: rank 3/4 local 1/2 node 1/2 at a:7"},
    {"mpirun_inside_slurm",
     with(with(kSlurm, kOpenMpi), {{"OMPI_COMM_WORLD_RANK", "3"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                   {"MASTER_PORT", "7"}}),
     "Open MPI: rank 3/4 local 1/2 node 1/2 at gpu08:7"},
    {"pmix_with_size",
     {{"PMIX_RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_PORT", "7"}},
     "PMIx: rank 1/2 local 1/2 node 0/1 at 127.0.0.1:7"},
    {"mpich",
     {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}},
     "MPICH or Intel MPI: rank 2/3 local 2/3 node 0/1 at 127.0.0.1:29500"},
    {"indexed_job", kIndexedJob,
     "Kubernetes (indexed job): rank 2/4 local 0/1 node 2/4 at train-0.train:29400"},
    {"trainjob",
     {{"JOB_COMPLETION_INDEX", "1"},
      {"PET_NNODES", "2"},
      {"PET_NPROC_PER_NODE", "1"},
      {"PET_NODE_RANK", "1"},
      {"PET_MASTER_ADDR", "job-node-0-0.job"},
      {"PET_MASTER_PORT", "29400"}},
     "Kubernetes (indexed job): rank 1/2 local 0/1 node 1/2 at job-node-0-0.job:29400"},
    {"indexed_job_of_single_runs",
     {{"JOB_COMPLETION_INDEX", "2"}},
     "one process: rank 0/1 local 0/1 node 0/1"},
    {"world_of_one", {{"WORLD_SIZE", "1"}}, "one process: rank 0/1 local 0/1 node 0/1"},
};

INSTANTIATE_TEST_SUITE_P(Launchers, LaunchEnvironments, testing::ValuesIn(kExamples),
                         [](const auto& info) { return std::string(info.param.name); });

class LaunchMistakes : public testing::TestWithParam<Example> {};

TEST_P(LaunchMistakes, AreNamed) {
  EXPECT_THAT(error_in(GetParam().variables), HasSubstr(GetParam().expected));
}

const std::vector<Example> kMistakes{
    {"rank_is_no_number", with(kTorchrun, {{"RANK", "six"}}),
     "environment variable RANK: must be a whole number of at least 0, got 'six'"},
    {"rank_is_negative", with(kTorchrun, {{"RANK", "-1"}}),
     "environment variable RANK: must be a whole number of at least 0, got '-1'"},
    {"rank_beyond_the_world", with(kTorchrun, {{"RANK", "8"}}), "rank 8 of 8"},
    {"local_rank_beyond", with(kTorchrun, {{"LOCAL_RANK", "4"}}),
     "LOCAL_RANK and LOCAL_WORLD_SIZE: 4 of 4"},
    {"empty_world", with(kTorchrun, {{"WORLD_SIZE", "0"}}), "must be at least 1, got 0"},
    {"more_local_ranks_than_ranks", with(kTorchrun, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
     "4 ranks on this host, 2 in all"},
    {"node_beyond", with(kTorchrun, {{"GROUP_RANK", "2"}}), "node rank 2 of 2"},
    {"port_too_large", with(kTorchrun, {{"MASTER_PORT", "70000"}}),
     "MASTER_PORT (torchrun): must lie between 1 and 65535, got 70000"},
    {"port_zero",
     {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "0"}},
     "MASTER_PORT (PyTorchJob): must lie between 1 and 65535, got 0"},
    {"pod_port_zero", with(kIndexedJob, {{"MASTER_PORT", ""}, {"PET_MASTER_PORT", "0"}}),
     "must lie between 1 and 65535, got 0"},
    {"rank_without_world", {{"RANK", "0"}}, "WORLD_SIZE: is not set, but RANK is"},
    {"world_without_rank", {{"WORLD_SIZE", "2"}}, "RANK: is not set, but WORLD_SIZE is"},
    {"no_address",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}},
     "MASTER_ADDR (PyTorchJob): not set"},
    {"address_is_none", with(kTorchrun, {{"MASTER_ADDR", "[fd00::1"}}),
     "MASTER_ADDR: is not an address: '[fd00::1'"},
    {"no_port",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
     "MASTER_PORT (PyTorchJob): not set"},
    {"slurm_node_list", with(kSlurm, {{"SLURM_STEP_NODELIST", "n[01-"}}),
     "SLURM_STEP_NODELIST: 'n[01-'"},
    {"slurm_tasks", with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}),
     "SLURM_STEP_TASKS_PER_NODE: '2(x'"},
    {"slurm_rank_beyond", with(kSlurm, {{"SLURM_PROCID", "5"}}), "(Slurm): rank 5 of 5"},
    {"slurm_without_local_id", with(kSlurm, {{"SLURM_LOCALID", ""}}),
     "SLURM_LOCALID: is not set, but SLURM_PROCID is"},
    {"mpirun_over_hosts_without_address", with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
     "mpirun -x MASTER_ADDR=<host of rank 0>"},
    {"mpirun_without_size", {{"OMPI_COMM_WORLD_RANK", "0"}}, "OMPI_COMM_WORLD_SIZE: is not set"},
    {"pmix_without_size", {{"PMIX_RANK", "0"}}, "WORLD_SIZE: is not set, but PMIX_RANK is"},
    {"pod_of_many", with(kIndexedJob, {{"PET_NPROC_PER_NODE", "4"}}),
     "fix: run `megatron launch -- pretrain …`"},
    {"pod_beyond", with(kIndexedJob, {{"JOB_COMPLETION_INDEX", "4"}}), "rank 4 of 4"},
};

INSTANTIATE_TEST_SUITE_P(Launchers, LaunchMistakes, testing::ValuesIn(kMistakes),
                         [](const auto& info) { return std::string(info.param.name); });

// The expected names are the output of `scontrol show hostnames`.
TEST(SlurmNodeList, IsExpanded) {
  EXPECT_THAT(expand_node_list("n1", "L"), ElementsAre("n1"));
  EXPECT_THAT(expand_node_list("n[01-04,7]", "L"), ElementsAre("n01", "n02", "n03", "n04", "n7"));
  EXPECT_THAT(expand_node_list("a[9-11],login,b[1,3]-ib", "L"),
              ElementsAre("a9", "a10", "a11", "login", "b1-ib", "b3-ib"));
  EXPECT_THAT(expand_node_list("r[1-2]n[08-09]", "L"),
              ElementsAre("r1n08", "r1n09", "r2n08", "r2n09"));
  EXPECT_THAT(expand_node_list("10.0.0.[1-2]", "L"), ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_THAT(expand_node_list("n[098-101]", "L"), ElementsAre("n098", "n099", "n100", "n101"));
}

TEST(SlurmNodeList, RefusesWhatIsNone) {
  for (const char* text : {"", "n[", "n[]", "n[1", "n[a]", "n[2-1]", "n]", "a,,b", "a,",
                           "n[1-99999999999999999999]", "n[1-1000000000]"}) {
    EXPECT_THROW(expand_node_list(text, "L"), UserError) << text;
  }
}

TEST(SlurmTasksPerNode, IsExpanded) {
  EXPECT_THAT(expand_tasks_per_node("4", "L"), ElementsAre(4));
  EXPECT_THAT(expand_tasks_per_node("2(x3),1", "L"), ElementsAre(2, 2, 2, 1));
  for (const char* text : {"", "0", "2(x", "2(x0)", "2(3)", "2,", "x"})
    EXPECT_THROW(expand_tasks_per_node(text, "L"), UserError) << text;
}

}  // namespace
}  // namespace megatron
