// Moves weights between two meshes of one job, such as from the ranks that train to those that
// generate. No rank holds the whole model. For programs on the library; no command calls it.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/checkpoint/manifest.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Elements that one rank gives another, or itself.
struct SliceMove {
  std::int64_t from = 0, to = 0;
  TensorSlice slice = {};
};

/// Returns the moves from or to `rank` that give every slice of `wanted` its elements once. The
/// file of a piece is the number of the rank that has it. Pieces of `held` have equal or disjoint
/// slices. Of several ranks that hold one, a rank that wants it takes its own, and the others take
/// turns. A rank's moves to another are in the same order on both.
std::vector<SliceMove> plan_moves(const ManifestTensor& held, const ManifestTensor& wanted,
                                  std::int64_t rank);

/// Fills the weights of `to` from those of `from` on all ranks of `world`, bit for bit where both
/// have one dtype; otherwise they are converted where they arrive. A rank of one mesh alone passes
/// null for the other. A state of a layer that no rank holds keeps its value, and weights that no
/// rank wants stay where they are. Tensors move together until they have `round_bytes`. Returns the
/// bytes that this rank sent to others. Throws a UserError on every rank for a weight that is
/// missing or has another shape. Weights of `to` must not be packed, and float32 main weights
/// beside them do not change (MainParameters::copy_model_params_to_main_params). Collective over
/// the world.
std::int64_t refit(const ObjectGroup& world, const ParamStore* from, ParamStore* to,
                   std::int64_t round_bytes = std::int64_t{256} << 20);

}  // namespace megatron
