// Tests the sources of the settings of `megatron launch`.
#include "megatron/config/launch_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megatron/base/error.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Variables = std::map<std::string, std::string>;
using testing::ElementsAre;
using testing::HasSubstr;

LaunchPlan plan_of(std::vector<std::string> flags, const Variables& variables = {},
                   const HostDevices& host = {.num_cpus = 6}) {
  flags.insert(flags.end(), {"--", "pretrain", "gpt", "--", "--lr", "1"});
  const auto lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  return read_launch_plan(flags, lookup, host);
}

std::string summary(const LaunchPlan& plan) {
  const std::string least =
      plan.min_nodes == plan.max_nodes ? "" : std::to_string(plan.min_nodes) + ":";
  return std::to_string(plan.ranks_per_node) + " on node " +
         (plan.node_rank ? std::to_string(*plan.node_rank) : "?") + "/" + least +
         std::to_string(plan.max_nodes) + " at " + plan.master_addr + ":" +
         std::to_string(plan.master_port);
}

std::string error_of(const std::vector<std::string>& flags, const Variables& variables = {}) {
  return message_of([&] { plan_of(flags, variables); });
}

TEST(LaunchPlan, KeepsTheCommandAsItIs) {
  EXPECT_THAT(plan_of({}).command, ElementsAre("pretrain", "gpt", "--", "--lr", "1"));
}

TEST(LaunchPlan, OfOneHost) {
  EXPECT_EQ(summary(plan_of({})), "1 on node 0/1 at 127.0.0.1:0");
  EXPECT_EQ(summary(plan_of({"--nproc-per-node", "8"})), "8 on node 0/1 at 127.0.0.1:0");
  EXPECT_EQ(summary(plan_of({"--nproc_per_node=8", "--master-port", "6000"})),
            "8 on node 0/1 at 127.0.0.1:6000");
  EXPECT_EQ(summary(plan_of({"--nproc-per-node", "cpu"})), "6 on node 0/1 at 127.0.0.1:0");
  EXPECT_EQ(summary(plan_of({"--nproc-per-node", "auto"})), "6 on node 0/1 at 127.0.0.1:0");
  EXPECT_EQ(summary(plan_of({"--nproc-per-node", "auto"}, {}, {.num_cpus = 6, .num_gpus = 4})),
            "4 on node 0/1 at 127.0.0.1:0");
  EXPECT_EQ(summary(plan_of({}, {{"MASTER_PORT", "5"}, {"MASTER_ADDR", "a"}})),
            "1 on node 0/1 at 127.0.0.1:0")
      << "as torchrun";
}

TEST(LaunchPlan, OfSeveralHosts) {
  const Variables pod{{"PET_NNODES", "4"},          {"PET_NPROC_PER_NODE", "8"},
                      {"PET_NODE_RANK", "3"},       {"PET_MASTER_ADDR", "m"},
                      {"PET_MASTER_PORT", "29400"}, {"PET_MAX_RESTARTS", "5"}};
  EXPECT_EQ(summary(plan_of({"--nnodes", "2", "--node-rank", "1", "--master-addr", "a"})),
            "1 on node 1/2 at a:29500");
  EXPECT_EQ(summary(plan_of({}, pod)), "8 on node 3/4 at m:29400");
  EXPECT_EQ(plan_of({}, pod).max_restarts, 5);
  EXPECT_EQ(
      summary(plan_of({"--nproc-per-node", "2", "--node-rank", "0", "--master-addr", "x"}, pod)),
      "2 on node 0/4 at x:29400")
      << "flags win";
  EXPECT_EQ(summary(plan_of({"--nnodes", "1"}, pod)), "8 on node 0/1 at 127.0.0.1:0");
}

TEST(LaunchPlan, OfHostsThatComeAndGo) {
  EXPECT_EQ(summary(plan_of({"--nnodes", "2:4", "--master-addr", "a"})),
            "1 on node ?/2:4 at a:29500");
  EXPECT_EQ(summary(plan_of({"--nnodes", "1:2", "--node-rank", "1", "--master-addr", "a"})),
            "1 on node 1/1:2 at a:29500");
  EXPECT_EQ(summary(plan_of({"--nnodes", "3:3", "--node-rank", "1", "--master-addr", "a"})),
            "1 on node 1/3 at a:29500");
  const Variables pod{{"PET_NNODES", "1:4"}, {"PET_NODE_RANK", "3"}, {"PET_MASTER_ADDR", "m"}};
  EXPECT_EQ(summary(plan_of({}, pod)), "1 on node ?/1:4 at m:29500");
  for (const char* wrong : {"0", "3:2", "1:", ":2", "1:x", "-1", "2:4:6", ""})
    EXPECT_THAT(error_of({"--nnodes", wrong, "--master-addr", "a"}),
                HasSubstr("is not a number of hosts"))
        << wrong;
}

TEST(LaunchPlan, OfATorchrunEndpoint) {
  const auto at = [&](const std::string& endpoint) {
    return summary(plan_of({"--nnodes", "1:2", "--rdzv-endpoint", endpoint}));
  };
  EXPECT_EQ(at("node1:29400"), "1 on node ?/1:2 at node1:29400");
  EXPECT_EQ(at("node1"), "1 on node ?/1:2 at node1:29500");
  EXPECT_EQ(at("[fd00::1]:7"), "1 on node ?/1:2 at fd00::1:7");
  EXPECT_EQ(at("fe80::1%eth0"), "1 on node ?/1:2 at fe80::1%eth0:29500");
  EXPECT_EQ(summary(plan_of({"--rdzv-endpoint", "localhost:0"})), "1 on node 0/1 at localhost:0");
  const Variables pod{{"PET_NNODES", "1:4"}, {"PET_RDZV_ENDPOINT", "gpt-worker-0:23456"}};
  EXPECT_EQ(summary(plan_of({}, pod)), "1 on node ?/1:4 at gpt-worker-0:23456");
  EXPECT_EQ(summary(plan_of({"--master-addr", "x"}, pod)), "1 on node ?/1:4 at x:29500");
  EXPECT_EQ(summary(plan_of({"--nnodes", "1"}, pod)), "1 on node 0/1 at 127.0.0.1:0");
  for (const char* wrong : {"node1:", "node1:x", "node1:0", "node1:65536", ":5", "[::1", "a:1:2",
                            "", "[]", "[]:5", "[::1]junk:5", "[::1]junk"})
    EXPECT_THAT(error_of({"--nnodes", "1:2", "--rdzv-endpoint", wrong}),
                HasSubstr("--rdzv-endpoint: is not an address: '"))
        << wrong;
  EXPECT_THAT(error_of({"--nnodes", "1:2", "--rdzv-endpoint", "a:1", "--master-port", "2"}),
              HasSubstr("--rdzv-endpoint: excludes --master-addr and --master-port"));
}

TEST(LaunchPlan, OfAnIpv6Master) {
  const auto at = [&](const std::string& address) {
    return summary(plan_of({"--nnodes", "1:2", "--master-addr", address}));
  };
  EXPECT_EQ(at("::1"), "1 on node ?/1:2 at ::1:29500");
  EXPECT_EQ(at("[::1]"), "1 on node ?/1:2 at ::1:29500");
  EXPECT_EQ(at("[::1]:7"), "1 on node ?/1:2 at ::1:7");
  EXPECT_EQ(summary(plan_of({"--nnodes", "1:2"}, {{"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "7"}})),
            "1 on node ?/1:2 at ::1:7");
  EXPECT_THAT(error_of({"--master-addr", "[::1"}), HasSubstr("--master-addr: is not an address"));
  EXPECT_THAT(error_of({"--master-addr", "[::1]:7", "--master-port", "7"}),
              HasSubstr("--master-addr [::1]:7: names a port, as --master-port does"));
}

TEST(LaunchPlan, OfALauncherOnEveryHost) {
  EXPECT_EQ(summary(plan_of({"--nproc-per-node", "4"}, {{"RANK", "1"},
                                                        {"WORLD_SIZE", "2"},
                                                        {"MASTER_ADDR", "job-master-0"},
                                                        {"MASTER_PORT", "23456"}})),
            "4 on node 1/2 at job-master-0:23456");
  EXPECT_EQ(summary(plan_of({"--nproc-per-node", "4"}, {{"SLURM_PROCID", "1"},
                                                        {"SLURM_NTASKS", "2"},
                                                        {"SLURM_LOCALID", "0"},
                                                        {"SLURM_NODEID", "1"},
                                                        {"SLURM_NNODES", "2"},
                                                        {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                                        {"SLURM_JOB_NODELIST", "n[1-2]"},
                                                        {"SLURM_JOB_ID", "10"}})),
            "4 on node 1/2 at n1:15010");
  EXPECT_EQ(summary(plan_of({}, {{"JOB_COMPLETION_INDEX", "1"},
                                 {"PET_NNODES", "2"},
                                 {"PET_NPROC_PER_NODE", "auto"},
                                 {"PET_MASTER_ADDR", "p"}})),
            "6 on node 1/2 at p:29500");
}

TEST(LaunchPlan, RefusesWhatItCannotDo) {
  const Variables two_per_host{{"RANK", "0"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "0"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "a"},
                               {"MASTER_PORT", "1"},
                               {"TORCHELASTIC_RUN_ID", "x"}};
  EXPECT_THAT(error_of({}, two_per_host),
              HasSubstr("torchrun has started it 2 times on this host"));
  EXPECT_THAT(error_of({"--nproc-per-node", "gpu"}),
              HasSubstr("--nproc-per-node gpu: this host has no GPU"));
  EXPECT_THAT(error_of({"--nproc-per-node", "-1"}), HasSubstr("must be a number of at least 1"));
  EXPECT_THAT(
      error_of({}, {{"PET_NPROC_PER_NODE", "x"}}),
      HasSubstr("PET_NPROC_PER_NODE: must be a number of at least 1, or auto, cpu, gpu; got 'x'"));
  EXPECT_THAT(error_of({}, {{"PET_NNODES", "0"}}),
              HasSubstr("PET_NNODES 0: is not a number of hosts"));
  EXPECT_THAT(error_of({}, {{"PET_NNODES", "2"}}),
              HasSubstr("--node-rank: is required with --nnodes 2"));
  for (const char* name : {"PET_MASTER_ADDR", "MASTER_ADDR"})
    EXPECT_THAT(error_of({}, {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {name, "[::1"}}),
                testing::StartsWith(name));
  EXPECT_THAT(error_of({"--nproc-per-node", "0"}),
              HasSubstr("--nproc-per-node: must be a number of at least 1"));
  EXPECT_THAT(error_of({"--nnodes", "2", "--node-rank", "2", "--master-addr", "a"}),
              HasSubstr("--node-rank 2: must be below --nnodes 2"));
  EXPECT_THAT(error_of({"--nnodes", "2", "--node-rank", "0"}),
              HasSubstr("--master-addr: is required with --nnodes 2"));
  EXPECT_THAT(error_of({"--nnodes", "1:4"}),
              HasSubstr("--master-addr: is required with --nnodes 1:4"));
  EXPECT_THAT(error_of({"--nnodes", "4:1", "--master-addr", "a"}),
              HasSubstr("--nnodes 4:1: is not a number of hosts\n  fix: give a number of at least "
                        "1, or MIN:MAX such as 2:4"));
  EXPECT_THAT(error_of({"--master-port", "99999"}),
              HasSubstr("--master-port: must be at most 65535, got 99999"));
  EXPECT_THAT(error_of({"--prefix", "some"}),
              HasSubstr("--prefix: must be one of all, others, none"));
  EXPECT_THAT(error_of({"--rdzv-backend", "etcd"}),
              HasSubstr("--rdzv-backend: must be one of c10d, static"));
  for (const char* name : {"PET_NODE_RANK", "PET_MASTER_PORT", "PET_MAX_RESTARTS"})
    EXPECT_THAT(error_of({}, {{name, "x"}}), HasSubstr(name)) << "also on one host";
}

/// `torchrun --standalone --nnodes=1 --nproc_per_node=8`, and with an id and a backend.
TEST(LaunchPlan, TakesTorchrunsFlags) {
  const Variables hosts{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "a"}};
  EXPECT_EQ(summary(plan_of({"--standalone", "--nnodes=1", "--nproc_per_node=8"}, hosts)),
            "8 on node 0/1 at 127.0.0.1:0");
  const LaunchPlan plan = plan_of({"--nnodes=2", "--node_rank=1", "--rdzv_id=77",
                                   "--rdzv_backend=c10d", "--rdzv_endpoint=a:6"});
  EXPECT_EQ(summary(plan), "1 on node 1/2 at a:6");
  EXPECT_EQ(plan.run_name, "77");
  EXPECT_EQ(summary(plan_of({"--nnodes=2", "--rdzv_endpoint=a:6"})), "1 on node ?/2 at a:6")
      << "in the order of joining";
  EXPECT_EQ(summary(plan_of({"--nnodes=2:2", "--master-addr=a"})), "1 on node ?/2 at a:29500");
  EXPECT_EQ(summary(plan_of({}, {{"PET_STANDALONE", "1"}, {"PET_NNODES", "2"}})),
            "1 on node 0/1 at 127.0.0.1:0");
  EXPECT_THAT(error_of({}, {{"PET_RDZV_BACKEND", "etcd"}}),
              HasSubstr("PET_RDZV_BACKEND: must be c10d or static, got 'etcd'"));
  EXPECT_EQ(plan_of({}, {{"PET_RDZV_ID", "x"}}).run_name, "x");
  EXPECT_EQ(plan_of({"--rdzv-id", "y"}, {{"PET_RDZV_ID", "x"}}).run_name, "y");
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--nnodes", "2"},
                                               {"--nnodes", "1:2"},
                                               {"--node-rank", "1"},
                                               {"--master-addr", "a"},
                                               {"--rdzv-endpoint", "a:6"}}) {
    std::vector<std::string> flags{"--standalone"};
    flags.insert(flags.end(), more.begin(), more.end());
    EXPECT_THAT(error_of(flags), HasSubstr("--standalone: excludes --nnodes")) << more[0];
  }
}

/// Returns the streams of the first two ranks as letters: o, e in the output, O, E in files.
std::string streams_of(const std::vector<std::string>& flags) {
  const RankOutput output = plan_of(flags).output;
  std::string text;
  for (const std::int64_t rank : {0, 1}) {
    for (const auto& [stream, letter] :
         {std::pair(OutputStream::out, 'o'), {OutputStream::err, 'e'}}) {
      if (output.shows(rank, stream)) text += letter;
      if (output.logs(rank, stream)) text += static_cast<char>(letter - 'a' + 'A');
    }
    if (rank == 0) text += ' ';
  }
  return text;
}

TEST(LaunchPlan, TakesTorchrunsFlagsOfOutput) {
  const auto streams = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--log-dir", "logs", "--nproc-per-node", "2"});
    return streams_of(flags);
  };
  EXPECT_EQ(streams({}), "oOeE oOeE");
  EXPECT_EQ(streams({"--redirects", "3"}), "OE OE");
  EXPECT_EQ(streams({"--tee", "3"}), "oOeE oOeE");
  EXPECT_EQ(streams({"--tee", "2"}), "oeE oeE");
  EXPECT_EQ(streams({"--redirects", "0:3,1:1"}), "OE Oe");
  EXPECT_EQ(streams({"--redirects=3", "--tee=0:1"}), "oOE OE");
  EXPECT_EQ(streams({"--redirects=0"}), "oOeE oOeE");
  EXPECT_EQ(streams({"--local-ranks-filter", "1"}), "OE oOeE");
  EXPECT_EQ(streams({"--local_ranks_filter", "0,1", "--redirects", "1:2"}), "oe oE");
  EXPECT_EQ(streams({"--tee", "0:0"}), "oOeE oOeE");
  EXPECT_EQ(streams_of({"--redirects", "0"}), "oOeE oOeE") << "asks for no file";
}

TEST(LaunchPlan, RefusesWrongFlagsOfOutput) {
  EXPECT_THAT(error_of({"--redirects", "3"}), HasSubstr("there is no --log-dir"));
  for (const char* wrong : {"4", "x", "0:4", "0:", ":1", "0:1,2", "0:1,,1:1", "-1:2"})
    EXPECT_THAT(error_of({std::string("--tee=") + wrong, "--log-dir", "logs"}),
                HasSubstr("does not name streams"))
        << wrong;
  EXPECT_THAT(error_of({"--tee=1:2", "--log-dir", "logs"}), HasSubstr("this host has no rank 1"));
  EXPECT_THAT(error_of({"--tee=0:2,0:1", "--log-dir", "logs"}), HasSubstr("gives a rank twice"));
  for (const char* wrong : {"1", "a", "0,,0", "0,1"})
    EXPECT_THAT(error_of({std::string("--local-ranks-filter=") + wrong}),
                HasSubstr("is no rank of this host"))
        << wrong;
}

TEST(LaunchPlan, TakesTheTimesOfTorchrunsRendezvous) {
  const LaunchPlan plan = plan_of({"--rdzv-conf", "timeout=900, last_call_timeout=3.5,is_host=1"});
  EXPECT_EQ(plan.notes,
            "note: --rdzv-conf is_host has no effect: it is about torchrun's own rendezvous\n");
  EXPECT_EQ(plan.join_s, 900);
  EXPECT_EQ(plan.last_call_s, 3.5);
  for (const double given : {7.0, 600.0})
    EXPECT_EQ(
        plan_of({"--rdzv_conf=join_timeout=9", "--join-seconds", std::to_string(given)}).join_s,
        given);
  EXPECT_EQ(plan_of({}, {{"PET_RDZV_CONF", "join_timeout=1800"}}).join_s, 1800);
  EXPECT_THAT(error_of({"--rdzv-conf", "join_timeout=inf"}), HasSubstr("not a number of seconds"));
  EXPECT_THAT(error_of({"--rdzv-conf", "join_timeout=9,timeout=1"}), HasSubstr("twice"));
  EXPECT_THAT(error_of({"--rdzv-conf", "join_timeout=soon"}), HasSubstr("not a number of seconds"));
  EXPECT_THAT(error_of({"--rdzv-conf", "join_timeout=-1"}), HasSubstr("not a number of seconds"));
  EXPECT_THAT(error_of({"--rdzv-conf", "patience=1"}), HasSubstr("no key 'patience'"));
  EXPECT_THAT(error_of({"--rdzv-conf", "timeout"}), HasSubstr("'timeout' has no value"));
}

}  // namespace
}  // namespace megatron
