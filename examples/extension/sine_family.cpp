#include "sine_family.h"

#include "megatron/models/gpt_model.h"

namespace {

/// A GPT with other blocks in its layers.
megatron::ModelSpec sine_spec(const megatron::TransformerConfig& config) {
  megatron::ModelSpec spec = megatron::gpt_spec(config);
  spec.stacks.front().layers.blocks = sine_blocks;
  return spec;
}

}  // namespace

megatron::ModelFamily sine_family() { return {.name = "sine", .title = "Sine", .spec = sine_spec}; }
