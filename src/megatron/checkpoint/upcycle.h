// Upcycling: makes a mixture-of-experts model from a dense one (He et al. 2024, "Upcycling Large
// Language Models into Mixture of Experts"). The experts are copies of the dense MLP, or with
// granularity G its G parts.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/moe_config.h"
#include "megatron/models/model_family.h"

namespace megatron {

struct CheckpointSource;
struct TransformerConfig;

/// Describes the experts that a dense model gets.
struct UpcycleRequest {
  MoeConfig experts = {};         ///< ffn_hidden_size 0: the width of the dense MLP / granularity
  std::int64_t granularity = 1;   ///< number of experts into which one dense MLP is divided
  double init_method_std = 0.02;  ///< of the weights that the dense model does not have
  std::uint64_t seed = 1234;
  Axis world{"world"};  ///< the ranks that write together
  c10::Device device{c10::kCPU};
  const ModelFamilies* families = &library_families();
};

/// Returns the architecture of the dense model `source` with experts. Throws UserError when it has
/// experts already, or when its MLP cannot be divided as requested.
TransformerConfig upcycled_architecture(const CheckpointSource& source,
                                        const UpcycleRequest& request);

/// Returns a reader of the weights of upcycled_architecture(), which reads those of `source`. The
/// weights of experts are scaled so that their weighted sum has the size of the dense MLP's result.
/// Weights without a dense origin, such as the router's, are drawn by their coordinates; the
/// router's rows are equal for the experts that are parts of one MLP.
std::unique_ptr<WeightReader> open_upcycled(const CheckpointSource& source,
                                            const UpcycleRequest& request);

/// Writes open_upcycled() as the release checkpoint of `root`, which must have no checkpoint yet.
/// Returns the folder of the release. Throws UserError. Collective over request.world, whose ranks
/// each read and write some of the weights.
std::filesystem::path write_upcycled(const CheckpointSource& source, const UpcycleRequest& request,
                                     const std::filesystem::path& root);

}  // namespace megatron
