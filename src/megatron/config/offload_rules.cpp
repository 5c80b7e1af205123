// Rules on what waits in another memory: activations, weights and the optimizer's state.
#include "megatron/config/activation_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

using namespace rules;

const OffloadConfig& offload(S s) { return s.memory->offload; }

/// Returns whether a flag, a plan or a budget offloads layers.
bool may_offload_layers(S s) { return offloads_layers(*s.memory) || s.memory->has_budget(); }

/// Returns whether a flag, a plan or a budget offloads something.
bool offloads(S s) { return may_offload_layers(s) || offload(s).optimizer_cpu_offload; }

bool offloads_whole_layers(S s) {
  return offload(s).cpu_offloading || offload(s).cpu_offloading_num_layers > 0;
}

bool has_sharded_state(S s) {
  const int stage = zero_stage(*s.parallel);
  return stage == 1 || stage == 2;
}

/// Returns what to add: offload in the plan that is given, or else one of the flags.
Words offload_to_add_to_plan(S s, const Words& flags) {
  if (s.memory->activation_plan.empty()) return "add " + flags;
  return {"add offload to a layer of ", &Memory::activation_plan};
}
Words something_to_offload(S s) {
  return offload_to_add_to_plan(s, {&Offload::cpu_offloading, ", ", &Offload::optimizer_cpu_offload,
                                    " or ", &Memory::memory_budget});
}
}  // namespace

const Rules& offload_rules() {
  static const Rules rules = {
      tunes({&Offload::offload_modules, &Offload::activation_offload_fraction},
            &Offload::fine_grained_activation_offloading),
      refuse({&Offload::fine_grained_activation_offloading, without(&Offload::offload_modules)},
             "names no part of a layer",
             {"add ", &Offload::offload_modules, ", for example core_attn"}),
      refuse({&Offload::fine_grained_activation_offloading, offloads_whole_layers},
             {"offloads parts of layers, and ", &Offload::cpu_offloading, " whole layers"},
             "choose one of them"),
      tunes({&Offload::cpu_offloading_weights, &Offload::cpu_offloading_activations},
            {offloads_whole_layers, &Offload::cpu_offloading}),
      refuse({&Offload::cpu_offloading_activations, &Offload::cpu_offloading,
              without(&Offload::cpu_offloading_weights)},
             {"leaves ", &Offload::cpu_offloading, " nothing to offload"},
             {"add ", &Offload::cpu_offloading_weights, ", or leave both out"}),
      idle({&Offload::optimizer_cpu_offload}, is(&Offload::optimizer_offload_fraction, "0")),
      idle({&Offload::fine_grained_activation_offloading},
           is(&Offload::activation_offload_fraction, "0")),
      refuse({&Offload::cpu_offloading_weights, offloads_whole_layers, without(&Training::bf16),
              without(&Training::fp16)},
             "is for weights of 16 bits: those of 32 bits are the optimizer's main weights",
             {"add ", &Training::bf16, ", or leave ", &Offload::cpu_offloading_weights, " out"}),
      refuse({&Offload::cpu_offloading_weights, offloads_whole_layers, has_sharded_state},
             {"with ", stage_flag,
              " needs sharded weights: otherwise every update gathers all weights in memory"},
             {"use ", &Parallel::zero_stage, " 3, or leave ", stage_flag, " out"}),
      excludes(&Offload::cpu_offloading_weights, &Model::mtp_use_repeated_layer),
      // --offload-modules has a message of its own.
      refuse({&Offload::offload_folder, without(&Offload::offload_modules), without(offloads)},
             "has no effect: nothing is offloaded",
             {something_to_offload, ", or leave ", &Offload::offload_folder, " out"}),
      note({&Offload::min_offloaded_tensor_size, without(may_offload_layers)},
           "without effect: no activations are offloaded"),
  };
  return rules;
}

}  // namespace megatron
