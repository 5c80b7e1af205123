#include "megatron/config/chaos_options.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/config/command_line.h"

namespace megatron {

const FieldTable<ChaosOptions>& chaos_table() {
  return field_table<ChaosOptions>([](auto& t) {
    t.about(
        "Breaks a run on purpose and says whether it survives: megatron chaos --seed 7 -- launch "
        "--nproc-per-node 4 -- pretrain gpt …  Runs the command once as it is and once with faults "
        "at moments that the seed decides, restarted by the launcher. Right is a run that ends, "
        "whose losses are those of the run without faults, and whose last checkpoint is equal. The "
        "exit code is 1 if it is not. It saves to a folder of its own, whatever --save and --load "
        "say.");
    t.group("Chaos");
    t.field("seed", &ChaosOptions::seed, "the same seed gives the same faults at the same moments")
        .at_least(0);
    t.field("faults", &ChaosOptions::faults, "number of faults").between(0, 1000);
    t.field("kinds", &ChaosOptions::kinds,
            "what may happen to a rank; kill, segfault: it dies; stop: it is stopped for ever; "
            "pause: for seconds; slow: it has half of its time for seconds; full-disk: no rank can "
            "write files until a save has failed, or 20 s have passed; drop-link: a connection to "
            "another rank is shut down; "
            "corrupt-link: foreign bytes are sent over it; bit-flip: a bit of one replica's weight "
            "changes, which is not among the kinds unless given")
        .choices({"kill", "segfault", "stop", "pause", "slow", "full-disk", "drop-link",
                  "corrupt-link", "bit-flip"});
    t.field("scratch", &ChaosOptions::scratch,
            "folder for checkpoints and logs; it must be empty; none: a temporary one, which stays "
            "if the run is wrong")
        .value_name("DIR");
    t.field(
         "timeout_seconds", &ChaosOptions::timeout_seconds,
         "a run that finishes no step for so long hangs; none: 120 more than "
         "--distributed-timeout-minutes of the command, after which ranks that wait for a stopped "
         "one end")
        .above(0);
    t.field("json", &ChaosOptions::json, "print one JSON object instead of a table");
  });
}

ChaosOptions read_chaos_options(std::span<const std::string> args,
                                std::vector<std::string>& command) {
  const auto separator = std::ranges::find(args, std::string("--"));
  const auto num_flags = static_cast<std::size_t>(separator - args.begin());
  ChaosOptions options;
  parse_command_line(chaos_table(), args.first(num_flags), options, "chaos");
  if (num_flags + 1 >= args.size())
    throw UserError({"the command after --", "is missing",
                     "write for example: megatron chaos --seed 7 -- launch --nproc-per-node 4 -- "
                     "pretrain gpt …"});
  command.assign(separator + 1, args.end());
  return options;
}

double seconds_until_hung(const ChaosOptions& options, double distributed_timeout_minutes) {
  constexpr double kWithoutWaiting = 120;
  const double waited = 60 * distributed_timeout_minutes;
  const double limit = options.timeout_seconds.value_or(waited + kWithoutWaiting);
  if (limit <= waited)
    throw UserError(
        {format("--timeout-seconds %g", limit),
         format("ends a run before the ranks that wait for a stopped one do, after %g s "
                "(--distributed-timeout-minutes %g)",
                waited, distributed_timeout_minutes),
         format("leave it out, or give at least %g", waited + kWithoutWaiting)});
  return limit;
}

}  // namespace megatron
