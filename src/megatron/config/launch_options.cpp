#include "megatron/config/launch_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/launch_variables.h"

namespace megatron {
namespace {

/// Returns the launch environment without PET_NPROC_PER_NODE, because this program starts the ranks
/// of this pod itself.
LaunchEnvironment outer_environment(const GetEnv& variables) {
  return find_launch_environment([&](const std::string& name) {
    return name == "PET_NPROC_PER_NODE" ? std::optional<std::string>() : variables(name);
  });
}

std::int64_t num_ranks(const std::string& text, const std::string& source,
                       const HostDevices& host) {
  if (text == "auto") return host.num_gpus > 0 ? host.num_gpus : host.num_cpus;
  if (text == "cpu") return host.num_cpus;
  if (text == "gpu") {
    if (host.num_gpus == 0)
      throw UserError({source + " gpu", "this host has no GPU", "give a number, or cpu"});
    return host.num_gpus;
  }
  const bool is_number = !text.empty() && text.size() < 7 &&
                         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  const std::int64_t number = is_number ? std::stoll(text) : 0;
  if (number < 1)
    throw UserError(source + ": must be a number of at least 1, or auto, cpu, gpu; got '" + text +
                    "'");
  return number;
}

/// The text "N" or "MIN:MAX" of a number of hosts.
std::pair<std::int64_t, std::int64_t> num_hosts(const std::string& text,
                                                const std::string& source) {
  const std::size_t colon = text.find(':');
  const auto number = [&](const std::string& part) -> std::int64_t {
    const bool is_number = !part.empty() && part.size() < 7 &&
                           std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    return is_number ? std::stoll(part) : 0;
  };
  const std::int64_t least = number(text.substr(0, colon)),
                     most = colon == std::string::npos ? least : number(text.substr(colon + 1));
  if (least < 1 || most < least)
    throw UserError({source + " " + text, "is not a number of hosts",
                     "give a number of at least 1, or MIN:MAX such as 2:4"});
  return {least, most};
}

/// Keys of --rdzv-conf that are about torchrun's own rendezvous.
constexpr std::array<std::string_view, 9> kTorchrunKeys{"is_host",
                                                        "store_type",
                                                        "use_libuv",
                                                        "read_timeout",
                                                        "close_timeout",
                                                        "heartbeat_timeout",
                                                        "keep_alive_interval",
                                                        "keep_alive_max_attempt",
                                                        "enable_shutdown_barrier"};

class PlanReader {
 public:
  PlanReader(const LaunchOptions& options, const GetEnv& lookup)
      : options_(options), variables_(lookup), lookup_(lookup) {}

  LaunchPlan read(const HostDevices& host) {
    check_variables();
    check_standalone();
    read_ranks(host);
    read_nodes();
    read_master();
    plan_.max_restarts = options_.max_restarts ? *options_.max_restarts
                                               : variables_.number("PET_MAX_RESTARTS").value_or(0);
    plan_.prefix = options_.prefix == "all"    ? LinePrefix::all
                   : options_.prefix == "none" ? LinePrefix::none
                                               : LinePrefix::others;
    read_output();
    read_rendezvous_conf();
    plan_.grace_s = options_.grace_seconds;
    plan_.join_s = options_.join_seconds;
    plan_.last_call_s = options_.last_call_seconds;
    plan_.settle_s = options_.settle_seconds;
    plan_.run_name =
        options_.rdzv_id ? *options_.rdzv_id : variables_.text("PET_RDZV_ID").value_or("");
    return std::move(plan_);
  }

 private:
  /// A variable that is wrong is a mistake also where its value is not used.
  void check_variables() const {
    for (const char* name : {"PET_NODE_RANK", "PET_MASTER_PORT", "PET_MAX_RESTARTS"})
      variables_.number(name);
    const std::string backend = variables_.text("PET_RDZV_BACKEND").value_or("c10d");
    if (backend != "c10d" && backend != "static")
      throw UserError({"PET_RDZV_BACKEND", "must be c10d or static, got '" + backend + "'",
                       "correct it, or start the run with torchrun"});
  }

  void check_standalone() {
    const bool is_in_environment = variables_.is_true("PET_STANDALONE") && !options_.nnodes;
    if (!options_.standalone && !is_in_environment) return;
    if (options_.nnodes.value_or("1") != "1" || options_.node_rank.value_or(0) != 0 ||
        options_.master_addr || options_.rdzv_endpoint)
      throw UserError({"--standalone",
                       "excludes --nnodes, --node-rank, --master-addr and --rdzv-endpoint",
                       "leave them out, or --standalone for a run on several hosts"});
    options_.nnodes = "1";
  }

  bool has_endpoint() const {
    return options_.rdzv_endpoint || variables_.has("PET_RDZV_ENDPOINT");
  }

  void read_ranks(const HostDevices& host) {
    const auto variable = variables_.text("PET_NPROC_PER_NODE");
    const bool has_flag = options_.nproc_per_node.has_value();
    plan_.ranks_per_node = num_ranks(has_flag ? *options_.nproc_per_node : variable.value_or("1"),
                                     has_flag ? "--nproc-per-node" : "PET_NPROC_PER_NODE", host);
  }

  void read_nodes() {
    if (options_.nnodes || variables_.has("PET_NNODES")) {
      const bool has_flag = options_.nnodes.has_value();
      const std::string text = has_flag ? *options_.nnodes : *variables_.text("PET_NNODES");
      std::tie(plan_.min_nodes, plan_.max_nodes) =
          num_hosts(text, has_flag ? "--nnodes" : "PET_NNODES");
      is_range_ = text.find(':') != std::string::npos;
    } else {
      outer_ = outer_environment(lookup_);
      if (outer_.world_size > 1 && outer_.local_world_size > 1) {
        throw UserError({"this launcher",
                         outer_.source + " has started it " +
                             std::to_string(outer_.local_world_size) + " times on this host",
                         "start it once on each host, or give --nnodes 1 for separate runs"});
      }
      plan_.min_nodes = plan_.max_nodes = outer_.world_size;
      plan_.node_rank = outer_.rank;
    }
    if (options_.node_rank) {
      plan_.node_rank = options_.node_rank;
    } else if (outer_.world_size == 1) {
      const auto node = variables_.first_number({"PET_NODE_RANK", "JOB_COMPLETION_INDEX"});
      // An elastic run numbers its hosts by itself: they come and go. So does torchrun where they
      // meet at an endpoint.
      const bool needs_number = plan_.min_nodes == plan_.max_nodes && !is_range_ && !has_endpoint();
      if (needs_number && plan_.max_nodes > 1 && !node)
        throw UserError({"--node-rank",
                         "is required with --nnodes " + std::to_string(plan_.max_nodes),
                         "give 0 on the first host, 1 on the next, …"});
      if (plan_.max_nodes == 1)
        plan_.node_rank = 0;
      else if (plan_.min_nodes == plan_.max_nodes)
        plan_.node_rank = node;
    }
    if (plan_.node_rank && *plan_.node_rank >= plan_.max_nodes) {
      throw UserError({"--node-rank " + std::to_string(*plan_.node_rank),
                       "must be below --nnodes " + std::to_string(plan_.max_nodes),
                       "number the hosts from 0"});
    }
  }

  void read_master() {
    if (options_.rdzv_endpoint) {
      if (options_.master_addr || options_.master_port)
        throw UserError(
            {"--rdzv-endpoint", "excludes --master-addr and --master-port", "give one of the two"});
      take_endpoint(*options_.rdzv_endpoint, "--rdzv-endpoint");
    } else if (const auto endpoint = variables_.text("PET_RDZV_ENDPOINT");
               endpoint && plan_.max_nodes > 1 && !options_.master_addr &&
               !variables_.has("PET_MASTER_ADDR")) {
      take_endpoint(*endpoint, "PET_RDZV_ENDPOINT");
    }
    if (options_.master_addr) plan_.master_addr = *options_.master_addr;
    if (options_.master_port) plan_.master_port = *options_.master_port;
    if (plan_.max_nodes == 1) return;
    if (!options_.master_addr) {
      const auto address = variables_.first_text({"PET_MASTER_ADDR", "MASTER_ADDR"});
      if (!address && outer_.master_addr.empty())
        throw UserError({"--master-addr", "is required with --nnodes " + nodes_text(),
                         "give the name or address of the first host"});
      plan_.master_addr = address ? *address : outer_.master_addr;
    }
    if (!options_.master_port) {
      const auto port = variables_.first_number({"PET_MASTER_PORT", "MASTER_PORT"});
      plan_.master_port = port ? *port : outer_.world_size > 1 ? outer_.master_port : 29500;
    }
  }

  void read_output() {
    plan_.log_dir = options_.log_dir;
    for (const auto& [flag, text, streams] :
         {std::tuple("--redirects", &options_.redirects, &plan_.output.redirects),
          std::tuple("--tee", &options_.tee, &plan_.output.tee)}) {
      if (text->empty()) continue;
      *streams = StreamSet(*text, flag);
      if (!streams->is_empty() && plan_.log_dir.empty())
        throw UserError({std::string(flag) + " writes the output of ranks to files",
                         "there is no --log-dir", "add --log-dir DIR"});
    }
    const std::string& filter = options_.local_ranks_filter;
    for (std::size_t begin = 0; begin < filter.size();) {
      const std::size_t end = std::min(filter.find(',', begin), filter.size());
      plan_.output.shown_ranks.push_back(shown_rank(filter.substr(begin, end - begin)));
      begin = end + 1;
    }
  }

  std::int64_t shown_rank(const std::string& text) const {
    const bool is_number = !text.empty() && text.size() < 7 &&
                           text.find_first_not_of("0123456789") == std::string::npos;
    if (is_number && std::stoll(text) < plan_.ranks_per_node) return std::stoll(text);
    throw UserError(
        {"--local-ranks-filter " + options_.local_ranks_filter,
         "'" + text + "' is no rank of this host",
         "the ranks of a host are numbered from 0 to " + std::to_string(plan_.ranks_per_node - 1)});
  }

  /// Takes the times of torchrun's --rdzv-conf that are not given as flags of their own.
  void read_rendezvous_conf() {
    const std::string& conf = options_.rdzv_conf;
    for (std::size_t begin = 0; begin < conf.size();) {
      const std::size_t end = std::min(conf.find(',', begin), conf.size());
      const std::string item = conf.substr(begin, end - begin);
      const std::size_t equals = item.find('=');
      if (equals == std::string::npos)
        throw UserError(
            {"--rdzv-conf " + conf, "'" + item + "' has no value", "write KEY=VALUE,KEY=VALUE"});
      take_rendezvous_time(item.substr(0, equals), item.substr(equals + 1));
      begin = end + 1;
    }
  }

  void take_rendezvous_time(const std::string& key, const std::string& text) {
    if (std::ranges::count(kTorchrunKeys, std::string_view(key)) > 0) return;
    const bool is_join = key == "join_timeout" || key == "timeout";
    if (!is_join && key != "last_call_timeout")
      throw UserError({"--rdzv-conf", "has no key '" + key + "'",
                       "use join_timeout or last_call_timeout, in seconds"});
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0))
      throw UserError({"--rdzv-conf " + key, "'" + text + "' is not a number of seconds",
                       "write for example " + key + "=600"});
    const LaunchOptions defaults;
    const auto member = is_join ? &LaunchOptions::join_seconds : &LaunchOptions::last_call_seconds;
    if (options_.*member == defaults.*member) options_.*member = seconds;
  }

  /// Takes HOST, HOST:PORT or [IPV6]:PORT as the master's address, as torchrun does.
  void take_endpoint(const std::string& text, const std::string& source) {
    const bool has_brackets = text.starts_with('[');
    const std::size_t host_end = text.find(has_brackets ? ']' : ':');
    const std::string host = text.substr(0, host_end).substr(has_brackets ? 1 : 0);
    std::string rest = host_end == std::string::npos ? "" : text.substr(host_end);
    if (has_brackets) rest = rest.starts_with(']') ? rest.substr(1) : "no bracket";
    const std::string port = rest.starts_with(':') ? rest.substr(1) : "";
    const bool is_number = !port.empty() && port.size() <= 5 &&
                           port.find_first_not_of("0123456789") == std::string::npos;
    const int number = is_number ? std::stoi(port) : -1;
    // torchrun's localhost:0 is any free port, which other hosts could not know.
    const int least = plan_.max_nodes == 1 ? 0 : 1;
    if (host.empty() || (!rest.empty() && (number < least || number > 65535)))
      throw UserError({source, "is not an address: '" + text + "'",
                       "write HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535"});
    options_.master_addr = host;
    if (!options_.master_port && number > 0) options_.master_port = number;
  }

  std::string nodes_text() const {
    return plan_.min_nodes == plan_.max_nodes
               ? std::to_string(plan_.max_nodes)
               : std::to_string(plan_.min_nodes) + ":" + std::to_string(plan_.max_nodes);
  }

  LaunchOptions options_;
  LaunchVariables variables_;
  const GetEnv& lookup_;
  LaunchEnvironment outer_;
  bool is_range_ = false;  ///< the number of hosts was written as MIN:MAX
  LaunchPlan plan_;
};

}  // namespace

const FieldTable<LaunchOptions>& launch_table() {
  using Options = LaunchOptions;
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
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
            "number of hosts; start this command on each. MIN:MAX makes the run elastic: it goes "
            "on with fewer hosts after one is lost, and takes in hosts that come later")
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
        .at_least(1)
        .at_most(65535);
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
    t.field("rdzv_conf", &Options::rdzv_conf,
            "torchrun's form of --join-seconds (join_timeout=S or timeout=S) and "
            "--last-call-seconds (last_call_timeout=S), separated by commas")
        .alias("rdzv_conf")
        .note(
            "sets join_timeout and last_call_timeout only; its other keys are about torchrun's "
            "own rendezvous")
        .value_name("KEY=VALUE,…");
    t.field("monitor_interval", &Options::monitor_interval,
            "seconds between torchrun's looks at its processes; here the launcher is told at once "
            "when one ends")
        .alias("monitor_interval")
        .note("has no effect: the launcher is told at once when a process ends")
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
        .at_least(0);
    t.field("join_seconds", &Options::join_seconds,
            "seconds to wait for the first host, and for the least number of hosts")
        .alias("join_timeout")
        .at_least(0);
    t.field("last_call_seconds", &Options::last_call_seconds,
            "with --nnodes MIN:MAX: seconds without a further host after which the run begins with "
            "those that are here")
        .alias("last_call_timeout")
        .at_least(0);
    t.field("settle_seconds", &Options::settle_seconds,
            "with --nnodes MIN:MAX: least time between the start of the ranks, or the arrival of a "
            "further host, and the stop that takes it in")
        .at_least(0);
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
            "ranks of this host in the output, from 0; their files have all (torchrun's flag)")
        .alias("local_ranks_filter")
        .value_name("K,K");
    return t;
  }();
  return table;
}

LaunchPlan read_launch_plan(std::span<const std::string> args, const GetEnv& variables,
                            const HostDevices& host) {
  const auto separator = std::ranges::find(args, std::string("--"));
  const auto num_flags = static_cast<std::size_t>(separator - args.begin());
  const bool wants_help = std::ranges::count(args, std::string("--help")) +
                              std::ranges::count(args, std::string("-h")) >
                          0;
  const UserError no_command(
      {"the command after --", "is missing",
       "write for example: megatron launch --nproc-per-node 2 -- pretrain gpt …"});
  if (separator == args.end() && !wants_help) throw no_command;
  LaunchOptions options;
  parse_command_line(launch_table(), args.first(num_flags), options, "launch");
  if (num_flags + 1 >= args.size()) throw no_command;
  LaunchPlan plan = PlanReader(options, variables).read(host);
  plan.command.assign(separator + 1, args.end());
  return plan;
}

}  // namespace megatron
