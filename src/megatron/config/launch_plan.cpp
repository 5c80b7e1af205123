// Decides the ranks of a host from the flags of `megatron launch` and the variables of other
// launchers.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/config/field_values.h"
#include "megatron/config/launch_options.h"
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
  const std::int64_t number = small_number(text).value_or(0);
  if (number < 1)
    throw UserError(source + ": must be a number of at least 1, or auto, cpu, gpu; got '" + text +
                    "'");
  return number;
}

/// The text "N" or "MIN:MAX" of a number of hosts.
std::pair<std::int64_t, std::int64_t> num_hosts(const std::string& text,
                                                const std::string& source) {
  const std::size_t colon = text.find(':');
  const auto number = [](const std::string& part) { return small_number(part).value_or(0); };
  const std::int64_t least = number(text.substr(0, colon)),
                     most = colon == std::string::npos ? least : number(text.substr(colon + 1));
  if (least < 1 || most < least)
    throw UserError({source + " " + text, "is not a number of hosts",
                     "give a number of at least 1, or MIN:MAX such as 2:4"});
  return {least, most};
}

/// Returns nullopt if the text is not a number of at least 0.
std::optional<double> seconds_of(const std::string& text) {
  const auto seconds = float_value(text);
  return seconds && std::isfinite(*seconds) && *seconds >= 0 ? seconds : std::nullopt;
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
  PlanReader(const LaunchOptions& options, const ParseResult& parsed, const GetEnv& lookup)
      : options_(options), parsed_(parsed), variables_(lookup), lookup_(lookup) {}

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
    const auto endpoint = variables_.text("PET_RDZV_ENDPOINT"),
               address = variables_.first_text({"PET_MASTER_ADDR", "MASTER_ADDR"});
    const bool is_pet = variables_.has("PET_MASTER_ADDR");
    if (options_.rdzv_endpoint) {
      if (options_.master_addr || options_.master_port)
        throw UserError(
            {"--rdzv-endpoint", "excludes --master-addr and --master-port", "give one of the two"});
      take_endpoint(*options_.rdzv_endpoint, "--rdzv-endpoint");
    } else if (options_.master_addr) {
      take_endpoint(*options_.master_addr, "--master-addr");
    } else if (plan_.max_nodes > 1 && endpoint && !is_pet) {
      take_endpoint(*endpoint, "PET_RDZV_ENDPOINT");
    } else if (plan_.max_nodes > 1 && address) {
      take_endpoint(*address, is_pet ? "PET_MASTER_ADDR" : "MASTER_ADDR");
    } else if (plan_.max_nodes > 1) {
      if (outer_.master_addr.empty())
        throw UserError({"--master-addr", "is required with --nnodes " + nodes_text(),
                         "give the name or address of the first host"});
      plan_.master_addr = outer_.master_addr;
    }
    if (options_.master_port) {
      plan_.master_port = *options_.master_port;
    } else if (plan_.max_nodes > 1) {
      const auto port = variables_.first_number({"PET_MASTER_PORT", "MASTER_PORT"});
      plan_.master_port = port ? *port : outer_.world_size > 1 ? outer_.master_port : 29500;
    }
  }

  /// Returns the value of a flag, or else of its variable.
  std::string flag_or_variable(const std::string& flag, const char* variable) const {
    return flag.empty() ? variables_.text(variable).value_or("") : flag;
  }

  void read_output() {
    plan_.log_dir = flag_or_variable(options_.log_dir, "PET_LOG_DIR");
    for (const auto& [flag, variable, text, streams] :
         {std::tuple("--redirects", "PET_REDIRECTS", &options_.redirects, &plan_.output.redirects),
          std::tuple("--tee", "PET_TEE", &options_.tee, &plan_.output.tee)}) {
      const std::string value = flag_or_variable(*text, variable);
      if (value.empty()) continue;
      *streams = StreamSet(value, text->empty() ? variable : flag, plan_.ranks_per_node);
      if (!streams->is_empty() && plan_.log_dir.empty())
        throw UserError({std::string(flag) + " writes the output of ranks to files",
                         "there is no --log-dir", "add --log-dir DIR"});
    }
    const std::string filter =
        flag_or_variable(options_.local_ranks_filter, "PET_LOCAL_RANKS_FILTER");
    for (const std::string& text : split_at(filter, ',')) {
      const auto local_rank = small_number(text);
      if (!local_rank || *local_rank >= plan_.ranks_per_node)
        throw UserError({"--local-ranks-filter " + filter, "'" + text + "' is no rank of this host",
                         "the ranks of a host are numbered from 0 to " +
                             std::to_string(plan_.ranks_per_node - 1)});
      plan_.output.shown_ranks.push_back(*local_rank);
    }
  }

  /// Takes the times of torchrun's --rdzv-conf that are not given as flags of their own.
  void read_rendezvous_conf() {
    std::set<std::string> seen;
    for (const std::string& item :
         split_at(flag_or_variable(options_.rdzv_conf, "PET_RDZV_CONF"), ',')) {
      const std::size_t equals = item.find('=');
      if (equals == std::string::npos)
        throw UserError(
            {"--rdzv-conf", "'" + item + "' has no value", "write KEY=VALUE,KEY=VALUE"});
      std::string key = item.substr(0, equals);
      if (key == "timeout") key = "join_timeout";  // the name of torchrun's static rendezvous
      if (!seen.insert(key).second)
        throw UserError({"--rdzv-conf", "gives " + key + " twice", "leave one of the two out"});
      take_rendezvous_time(key, item.substr(equals + 1));
    }
  }

  void take_rendezvous_time(const std::string& key, const std::string& text) {
    if (std::ranges::count(kTorchrunKeys, std::string_view(key)) > 0) {
      plan_.notes +=
          "note: --rdzv-conf " + key + " has no effect: it is about torchrun's own rendezvous\n";
      return;
    }
    const bool is_join = key == "join_timeout";
    if (!is_join && key != "last_call_timeout")
      throw UserError({"--rdzv-conf", "has no key '" + key + "'",
                       "use join_timeout or last_call_timeout, in seconds"});
    const std::optional<double> seconds = seconds_of(text);
    if (!seconds)
      throw UserError({"--rdzv-conf " + key, "'" + text + "' is not a number of seconds",
                       "write for example " + key + "=600"});
    if (!parsed_.is_set(is_join ? "join_seconds" : "last_call_seconds"))
      (is_join ? options_.join_seconds : options_.last_call_seconds) = *seconds;
  }

  /// Takes the master's address and, if it is written behind it, the port.
  void take_endpoint(const std::string& text, const std::string& source) {
    // torchrun's localhost:0 is any free port, which other hosts could not know.
    const Endpoint found = master_endpoint(text, source, plan_.max_nodes == 1 ? 0 : 1);
    plan_.master_addr = found.host;
    if (found.port >= 0 && options_.master_port && source.starts_with("--"))
      throw UserError(
          {source + " " + text, "names a port, as --master-port does", "give one of the two"});
    if (!options_.master_port && found.port > 0) options_.master_port = found.port;
  }

  std::string nodes_text() const {
    return plan_.min_nodes == plan_.max_nodes
               ? std::to_string(plan_.max_nodes)
               : std::to_string(plan_.min_nodes) + ":" + std::to_string(plan_.max_nodes);
  }

  LaunchOptions options_;
  const ParseResult& parsed_;
  LaunchVariables variables_;
  const GetEnv& lookup_;
  LaunchEnvironment outer_;
  bool is_range_ = false;  ///< the number of hosts was written as MIN:MAX
  LaunchPlan plan_;
};

}  // namespace

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
  const ParseResult parsed =
      parse_command_line(launch_table(), args.first(num_flags), options, "launch");
  if (num_flags + 1 >= args.size()) throw no_command;
  LaunchPlan plan = PlanReader(options, parsed, variables).read(host);
  plan.command.assign(separator + 1, args.end());
  plan.notes.insert(0, notes_text(parsed.notes));
  return plan;
}

}  // namespace megatron
