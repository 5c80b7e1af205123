#include "megatron/config/launch_options.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {

StreamSet::StreamSet(const std::string& text, const std::string& flag, std::int64_t num_ranks) {
  const auto refuse = [&](const std::string& why) {
    throw UserError({flag + " " + text, why,
                     "write 1 (stdout), 2 (stderr) or 3 (both), or a list of local ranks with "
                     "theirs, such as 0:3,1:2"});
  };
  const auto streams = [&](const std::string& part) {
    const std::int64_t found = small_number(part).value_or(4);
    if (found > 3) refuse("does not name streams");
    return static_cast<int>(found);
  };
  if (text.find(':') == std::string::npos) {
    of_others_ = streams(text);
    return;
  }
  for (const std::string& item : split_at(text, ',')) {
    const std::vector<std::string> words = split_at(item, ':');
    const auto rank = words.size() == 2 ? small_number(words[0]) : std::nullopt;
    if (!rank) refuse("does not name streams");
    if (*rank >= num_ranks) refuse("this host has no rank " + words[0]);
    if (!of_rank_.emplace(*rank, streams(words[1])).second) refuse("gives a rank twice");
  }
}

bool StreamSet::is_empty() const {
  return of_others_ == 0 &&
         std::ranges::all_of(of_rank_, [](const auto& entry) { return entry.second == 0; });
}

bool StreamSet::contains(std::int64_t local_rank, OutputStream stream) const {
  const auto found = of_rank_.find(local_rank);
  const int streams = found == of_rank_.end() ? of_others_ : found->second;
  return (streams & static_cast<int>(stream)) != 0;
}

bool RankOutput::logs(std::int64_t local_rank, OutputStream stream) const {
  return (redirects.is_empty() && tee.is_empty()) || redirects.contains(local_rank, stream) ||
         tee.contains(local_rank, stream);
}

bool RankOutput::shows(std::int64_t local_rank, OutputStream stream) const {
  return (shown_ranks.empty() || std::ranges::count(shown_ranks, local_rank) > 0) &&
         (tee.contains(local_rank, stream) || !redirects.contains(local_rank, stream));
}

namespace {

/// Some thirty years. Longer times overflow when they are compared in nanoseconds.
constexpr double kLongestSeconds = 1e9;

}  // namespace

const FieldTable<LaunchOptions>& launch_table() {
  using Options = LaunchOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Runs a command on several ranks: megatron launch --nproc-per-node 8 -- pretrain gpt …  "
        "Values without a flag are taken from torchrun's PET_* variables, or from Slurm, MPI or "
        "Kubernetes if one of them starts this command once on every host.");
    t.group("Ranks");
    t.field(
         "nproc_per_node", &Options::nproc_per_node,
         "number of ranks on this host, or gpu (one per GPU), cpu (one per CPU), or auto (gpu if "
         "there is a GPU, else cpu)")
        .alias("nproc_per_node")
        .alias("nproc")
        .value_name("N");
    t.field("nnodes", &Options::nnodes,
            "number of hosts; start this command on each. MIN:MAX makes the run elastic: it "
            "continues with fewer hosts after one is lost, and takes in hosts that come later")
        .value_name("N");
    t.field("node_rank", &Options::node_rank,
            "number of this host, from 0; not needed with MIN:MAX")
        .alias("node_rank")
        .at_least(0);
    t.field("master_addr", &Options::master_addr, "name or address of the first host")
        .alias("master_addr")
        .value_name("HOST");
    t.field("master_port", &Options::master_port,
            "port of the rendezvous; default: any free port on one host, 29500 on several")
        .alias("master_port")
        .between(1, 65535);
    t.field("rdzv_endpoint", &Options::rdzv_endpoint,
            "torchrun's form of --master-addr and --master-port")
        .alias("rdzv_endpoint")
        .value_name("HOST:PORT");
    t.field("rdzv_id", &Options::rdzv_id,
            "name of the run, equal on all hosts; a launcher of another run is refused (torchrun's "
            "flag)")
        .alias("rdzv_id")
        .value_name("NAME");
    t.field("rdzv_backend", &Options::rdzv_backend,
            "where the hosts meet, as for torchrun; here both are the store of the first "
            "launcher, which speaks c10d's protocol")
        .alias("rdzv_backend")
        .choices({"c10d", "static"});
    t.field(
         "rdzv_conf", &Options::rdzv_conf,
         "torchrun's form of --join-seconds (join_timeout=S or timeout=S) and "
         "--last-call-seconds (last_call_timeout=S), separated by commas; other keys of torchrun "
         "have no effect")
        .alias("rdzv_conf")
        .value_name("KEY=VALUE,…");
    t.field(
         "monitor_interval", &Options::monitor_interval,
         "has no effect here: torchrun looks at its processes every so many seconds, this launcher "
         "notices at once when one ends")
        .alias("monitor_interval")
        .note("has no effect: the launcher notices at once when a process ends")
        .above(0);
    t.field("standalone", &Options::standalone,
            "run on this host only, also where the environment names several (torchrun's flag)");
    t.group("Failures");
    t.field("max_restarts", &Options::max_restarts,
            "largest number of times that all ranks are restarted after a failure; exit codes 0, "
            "2, 17, 130 and 143 never cause a restart")
        .alias("max_restarts")
        .at_least(0);
    t.field("grace_seconds", &Options::grace_seconds,
            "seconds that the other ranks have to exit after one has failed, before they are "
            "killed")
        .between(0, kLongestSeconds);
    t.field("join_seconds", &Options::join_seconds,
            "seconds to wait for the first host, and for the least number of hosts")
        .alias("join_timeout")
        .between(0, kLongestSeconds);
    t.field("last_call_seconds", &Options::last_call_seconds,
            "with --nnodes MIN:MAX: seconds without a further host after which the run begins with "
            "those that have joined")
        .alias("last_call_timeout")
        .between(0, kLongestSeconds);
    t.field("settle_seconds", &Options::settle_seconds,
            "with --nnodes MIN:MAX: least time between the start of the ranks, or the arrival of a "
            "further host, and the stop that takes it in")
        .between(0, kLongestSeconds);
    t.group("Output");
    t.field("prefix", &Options::prefix,
            "which output lines to prefix with [rank k]: all, others (those of all ranks but 0) or "
            "none")
        .choices({"all", "others", "none"});
    t.field("log_dir", &Options::log_dir,
            "write the output of each rank also to rank_<k>.log in this folder")
        .alias("log_dir")
        .value_name("DIR");
    t.field("redirects", &Options::redirects,
            "which streams go to the files of --log-dir only: 1 (stdout), 2 (stderr), 3 (both), or "
            "a list of local ranks with theirs, such as 0:3,1:2 (torchrun's flag)")
        .value_name("STREAMS");
    t.field("tee", &Options::tee,
            "which streams go to the files of --log-dir and to the output, as --redirects; without "
            "either flag: all (torchrun's flag)")
        .value_name("STREAMS");
    t.field("local_ranks_filter", &Options::local_ranks_filter,
            "ranks of this host, from 0, whose output is shown; log files still have the output of "
            "every rank (torchrun's flag)")
        .alias("local_ranks_filter")
        .value_name("K,K");
  });
}

}  // namespace megatron
