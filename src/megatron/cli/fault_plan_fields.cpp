#include "megatron/cli/fault_plan_fields.h"

#include <array>

namespace megatron {
namespace {

using Options = FaultPlanOptions;

constexpr std::array kConstants{
    FaultConstant{"step_seconds", &Options::step_seconds, "time of a step",
                  "published: 405B parameters, 16.8M tokens, 400 TFLOP/s of each GPU (Llama 3)"},
    FaultConstant{"save_seconds", &Options::save_seconds, "by which a save interrupts training",
                  "assumed: an asynchronous save copies to host memory"},
    FaultConstant{"durable_seconds", &Options::durable_seconds, "after which a save can be loaded",
                  "assumed"},
    FaultConstant{"peer_copy_seconds", &Options::peer_copy_seconds,
                  "by which a copy to a peer's memory lengthens each step", "assumed"},
    FaultConstant{"crash_seconds", &Options::crash_seconds, "until a dead process is noticed",
                  "measured: megatron chaos, kill, CPU ranks of one host, with the restart"},
    FaultConstant{"timeout_minutes", &Options::timeout_minutes,
                  "until a hang ends a run that is restarted by hand or from a checkpoint",
                  "default of --distributed-timeout-minutes"},
    FaultConstant{"hang_seconds", &Options::hang_seconds,
                  "until a hang is noticed by the other policies",
                  "assumed: --distributed-timeout-minutes 1"},
    FaultConstant{"operator_minutes", &Options::operator_minutes,
                  "by hand: until an operator has found the host and started the run again",
                  "assumed, day and night"},
    FaultConstant{"allocation_minutes", &Options::allocation_minutes,
                  "until the scheduler gives another host where none is spare", "assumed"},
    FaultConstant{"start_seconds", &Options::start_seconds,
                  "to start all processes and communicators", "assumed"},
    FaultConstant{"load_seconds", &Options::load_seconds, "to load a checkpoint from storage",
                  "assumed"},
    FaultConstant{"in_process_start_seconds", &Options::in_process_start_seconds,
                  "to make the communicators again where processes survive", "assumed"},
    FaultConstant{"peer_load_seconds", &Options::peer_load_seconds,
                  "to load the state from the memory of peers", "assumed"},
    FaultConstant{"slow_by_hand_minutes", &Options::slow_by_hand_minutes,
                  "until a person notices a slow host", "assumed"},
    FaultConstant{"slow_minutes", &Options::slow_minutes,
                  "until the comparison of ranks names a slow host", "assumed: 20 steps"},
    FaultConstant{"slow_speed", &Options::slow_speed, "speed of a run with a slow host", "assumed"},
    FaultConstant{"corruption_by_hand_minutes", &Options::corruption_by_hand_minutes,
                  "until a person notices wrong numbers", "assumed"},
    FaultConstant{"corruption_minutes", &Options::corruption_minutes,
                  "until a comparison of replicas notices wrong numbers",
                  "assumed: --check-weight-hash-across-dp-replicas-interval 100"},
};

}  // namespace

std::span<const FaultConstant> fault_constants() { return kConstants; }

const FieldTable<FaultPlanOptions>& fault_plan_table() {
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    t.group("Faults");
    t.field("faults", &Options::faults,
            "replay a run on hosts that fail, and print which part of the time it trains with "
            "restarts by hand, automatic ones, spare hosts and copies in peers, and elastic; "
            "--world-size is the number of GPUs (16384)");
    t.field("failure_mix", &Options::failure_mix,
            "what fails: llama3, the interruptions that Meta counted in 54 days on 16,384 GPUs, "
            "or a JSON file")
        .value_name("MIX");
    t.field("failure_rate_scale", &Options::failure_rate_scale,
            "factor of the rate of all failures")
        .at_least(0)
        .at_most(1000);
    t.field("days", &Options::days, "length of the run").above(0).at_most(10'000);
    t.field("gpus_per_host", &Options::gpus_per_host, "number of GPUs that a host loses with it")
        .at_least(1);
    t.field("hosts_per_replica", &Options::hosts_per_replica,
            "hosts of one data-parallel replica, by which an elastic run shrinks")
        .at_least(1);
    t.field("spare_hosts", &Options::spare_hosts, "hosts that wait for others to fail")
        .at_least(0)
        .at_most(1e6);
    t.field("replays", &Options::replays, "number of runs that are replayed with each policy")
        .at_least(1)
        .at_most(100'000);
    t.field("replay_seed", &Options::replay_seed, "the same seed gives the same failures")
        .at_least(0);
    t.field("checkpoint_minutes", &Options::checkpoint_minutes, "training between two saves")
        .above(0);
    for (const FaultConstant& constant : kConstants)
      t.field(constant.name, constant.member,
              std::string("--faults: ") + constant.help + " (" + constant.source + ")")
          .at_least(0)
          .at_most(1e9);
    return t;
  }();
  return table;
}

}  // namespace megatron
