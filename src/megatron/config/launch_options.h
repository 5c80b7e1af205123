// The settings of `megatron launch`, from flags, from torchrun's PET_* variables, or from a
// launcher that started it once on every host.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/config/field_table.h"
#include "megatron/config/launch_environment.h"

namespace megatron {

/// The values are torchrun's, whose sums name both streams.
enum class OutputStream { out = 1, err = 2 };

/// Streams of the ranks of a host.
class StreamSet {
 public:
  StreamSet() = default;
  /// Reads "0" (none), "1" (stdout), "2" (stderr) or "3" (both) for every rank, or a list such as
  /// "0:3,1:2" for single ones of the host's ranks. Throws a UserError that names `flag`.
  StreamSet(const std::string& text, const std::string& flag, std::int64_t num_ranks);
  bool contains(std::int64_t local_rank, OutputStream stream) const;
  bool is_empty() const;

 private:
  int of_others_ = 0;
  std::map<std::int64_t, int> of_rank_;
};

/// Which output of the ranks the launcher shows, and which it writes to files: torchrun's flags
/// --redirects, --tee and --local-ranks-filter.
struct RankOutput {
  StreamSet redirects = {};  ///< written to files in place of the launcher's output
  StreamSet tee = {};        ///< written to both
  std::vector<std::int64_t> shown_ranks = {};  ///< local ranks in the launcher's output; empty: all

  /// Returns whether a stream is written to the rank's file. Where neither flag is given, all are.
  bool logs(std::int64_t local_rank, OutputStream stream) const;
  /// Returns whether a stream is forwarded to the launcher's output.
  bool shows(std::int64_t local_rank, OutputStream stream) const;
};

struct LaunchOptions {
  std::optional<std::string> nproc_per_node, nnodes, master_addr, rdzv_endpoint, rdzv_id;
  std::optional<std::int64_t> node_rank, master_port, max_restarts;
  bool standalone = false;
  std::string rdzv_backend = "c10d";
  std::string prefix = "others";
  std::string log_dir, redirects, tee, local_ranks_filter, rdzv_conf;
  double monitor_interval = 0.1;
  double grace_seconds = 15, join_seconds = 600, last_call_seconds = 15, settle_seconds = 30;
};

const FieldTable<LaunchOptions>& launch_table();

/// The devices of this host, for --nproc-per-node auto, cpu and gpu.
struct HostDevices {
  std::int64_t num_cpus = 1, num_gpus = 0;
};

enum class LinePrefix { all, others, none };

/// The ranks to start on this host and the address of their rendezvous.
struct LaunchPlan {
  std::int64_t ranks_per_node = 1, max_restarts = 0;
  std::int64_t min_nodes = 1, max_nodes = 1;
  std::optional<std::int64_t> node_rank;  ///< unset: in the order of joining
  std::string master_addr = "127.0.0.1";
  std::int64_t master_port = 0;  ///< 0: any free port
  std::string run_name;          ///< equal on all hosts; "" for a run without a name
  LinePrefix prefix = LinePrefix::others;
  std::string log_dir;
  RankOutput output;
  double grace_s = 15;                                   ///< seconds between SIGTERM and SIGKILL
  double join_s = 600, last_call_s = 15, settle_s = 30;  ///< see MembershipOptions
  std::vector<std::string> command;
  std::string notes;  ///< remarks on the flags for stderr, each with a line end

  std::int64_t max_world_size() const { return ranks_per_node * max_nodes; }
};

/// Reads the flags before `--`, the command after it, and the variables for values without a flag.
/// Throws a UserError if a value is invalid.
LaunchPlan read_launch_plan(std::span<const std::string> args, const GetEnv& variables,
                            const HostDevices& host);

}  // namespace megatron
