// Rules on what waits in another memory: activations, weights and the optimizer's state.
#include "megatron/config/activation_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
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

}  // namespace

const Rules& offload_rules() {
  static const Rules of_parts = {
      rule([](S s) { return offload(s).offload_modules.empty(); },
           {&Offload::fine_grained_activation_offloading,
            "names no part of a layer",
            {"add ", &Offload::offload_modules, ", for example core_attn"}}),
      rule(offloads_whole_layers,
           {&Offload::fine_grained_activation_offloading,
            {"offloads parts of layers, and ", &Offload::cpu_offloading, " whole layers"},
            "choose one of them",
            {&Offload::cpu_offloading_num_layers}}),
  };
  static const Rules rules = {
      needs(&Offload::offload_modules, &Offload::fine_grained_activation_offloading),
      when([](S s) { return offload(s).fine_grained_activation_offloading; }, of_parts),
      rule(
          [](S s) {
            return (offload(s).cpu_offloading_weights || !offload(s).cpu_offloading_activations) &&
                   !offloads_whole_layers(s);
          },
          [](S s) {
            return Message{
                offload(s).cpu_offloading_weights ? Words(&Offload::cpu_offloading_weights)
                                                  : off(&Offload::cpu_offloading_activations),
                {"says what ", &Offload::cpu_offloading, " moves, which is not given"},
                is_planned(*s.memory) ? Words{"add ", &Offload::cpu_offloading, " ",
                                              off(&Offload::cpu_offloading_activations),
                                              ", because the plan says what becomes of activations"}
                                      : Words{"add ", &Offload::cpu_offloading, " or ",
                                              &Offload::cpu_offloading_num_layers}};
          }),
      rule(
          [](S s) {
            return !offload(s).cpu_offloading_weights && !offload(s).cpu_offloading_activations &&
                   offload(s).cpu_offloading;
          },
          {off(&Offload::cpu_offloading_activations),
           {"leaves ", &Offload::cpu_offloading, " nothing to offload"},
           {"add ", &Offload::cpu_offloading_weights, ", or leave both out"}}),
      rule(
          [](S s) {
            return offload(s).cpu_offloading_weights && !s.training->bf16 && !s.training->fp16;
          },
          {&Offload::cpu_offloading_weights,
           "is for weights of 16 bits: those of 32 bits are the optimizer's main weights",
           {"add ", &Training::bf16, ", or leave ", &Offload::cpu_offloading_weights, " out"},
           {&Training::fp16}}),
      rule([](S s) { return offload(s).cpu_offloading_weights && has_sharded_state(s); },
           [](S s) {
             return Message{
                 &Offload::cpu_offloading_weights,
                 "with " + stage_flag(s) +
                     " needs sharded weights: otherwise every update gathers all weights in memory",
                 Words{"use ", &Parallel::zero_stage, " 3, or leave "} + stage_flag(s) + " out"};
           }),
      // --offload-modules has a message of its own.
      rule(
          [](S s) {
            return !offload(s).offload_folder.empty() && offload(s).offload_modules.empty() &&
                   !offloads(s);
          },
          [](S s) {
            return Message{
                &Offload::offload_folder,
                "has no effect: nothing is offloaded",
                s.memory->activation_plan.empty()
                    ? Words{"add ", &Offload::cpu_offloading, ", ", &Offload::optimizer_cpu_offload,
                            " or ", &Memory::memory_budget, ", or leave ", &Offload::offload_folder,
                            " out"}
                    : Words{"add offload to a layer of ", &Memory::activation_plan, ", or leave ",
                            &Offload::offload_folder, " out"},
                {&Offload::cpu_offloading_num_layers, &Offload::fine_grained_activation_offloading,
                 &Offload::offload_modules, &Recompute::recompute_granularity}};
          }),
      rule(
          [](S s) {
            return offload(s).min_offloaded_tensor_size !=
                       OffloadConfig{}.min_offloaded_tensor_size &&
                   !may_offload_layers(s);
          },
          [](S s) {
            return Message{&Offload::min_offloaded_tensor_size,
                           "has no effect: no activations are offloaded",
                           (s.memory->activation_plan.empty()
                                ? Words{"add ", &Offload::cpu_offloading, " or ",
                                        &Offload::fine_grained_activation_offloading}
                                : Words{"add offload to a layer of ", &Memory::activation_plan}) +
                               Words{", or leave ", &Offload::min_offloaded_tensor_size, " out"},
                           {&Offload::cpu_offloading_num_layers, &Memory::memory_budget,
                            &Recompute::recompute_granularity}};
          }),
      rule(
          [](S s) {
            return offload(s).optimizer_cpu_offload && offload(s).optimizer_offload_fraction == 0;
          },
          {{&Offload::optimizer_offload_fraction, " 0"},
           {"leaves ", &Offload::optimizer_cpu_offload, " nothing to offload"},
           "give a share above 0, or leave both out"}),
      rule(
          [](S s) {
            return offload(s).fine_grained_activation_offloading &&
                   offload(s).activation_offload_fraction == 0;
          },
          {{&Offload::activation_offload_fraction, " 0"},
           {"leaves ", &Offload::fine_grained_activation_offloading, " nothing to offload"},
           "give a share above 0, or leave both out"}),
      needs(&Offload::activation_offload_fraction, &Offload::fine_grained_activation_offloading),
      rule(
          [](S s) {
            return s.model->num_layers > 0 &&
                   offload(s).cpu_offloading_num_layers > s.model->num_layers;
          },
          {with_value(&Offload::cpu_offloading_num_layers),
           {"is more than the ", value(&Model::num_layers), " layers of the model"},
           {"give at most the layers of a pipeline stage, or ", &Offload::cpu_offloading,
            " for all"}}),
  };
  return rules;
}

}  // namespace megatron
