// A tensor of a checkpoint of Megatron-LM or DeepSpeed: where its elements lie in files, and how
// its name and its axes become ours.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/checkpoint/manifest.h"
#include "megatron/formats/torch_file.h"
#include "megatron/params/sharding.h"

namespace megatron {

/// Consecutive elements of a tensor in a file.
struct StoredRun {
  std::string file = {};
  std::uint64_t offset = 0;  ///< of the first one, in bytes
  std::int64_t first = 0, count = 0;
};

/// Elements in row-major order. Runs in files hold them one after the other.
struct StoredElements {
  std::int64_t count() const { return runs.empty() ? 0 : runs.back().first + runs.back().count; }
  /// Appends elements [first, first + size) of other ones. Throws a UserError that begins with
  /// `place` if there are fewer, or if they have another type.
  void append(const StoredElements& other, std::int64_t first, std::int64_t size,
              const std::string& place);

  TorchDtype dtype = {};
  std::vector<StoredRun> runs = {};
};

/// A tensor of a rank: the weight "", and the states of the optimizer by their prefix ("exp_avg.").
struct RankTensor {
  Shape shape = {};
  bool is_frozen = false;
  std::map<std::string, StoredElements> states = {};
};
using RankTensors = std::map<std::string, RankTensor>;

/// Returns the elements of a tensor of a file, relative to the folder of a checkpoint. Throws a
/// UserError that begins with `place` if they are not in row-major order.
StoredElements stored_elements(const TorchTensor& tensor, const std::string& file,
                               const std::string& place);
/// Returns the same as a tensor that is a weight.
RankTensor whole_tensor(const TorchTensor& tensor, const std::string& file,
                        const std::string& place);

/// Adds the elements of a slice of a tensor of `shape`, its place there being its local offset, to
/// `pieces`. Returns false if they do not follow each other there.
bool add_pieces(const StoredElements& elements, const Shape& shape, const TensorSlice& slice,
                std::vector<Piece>& pieces);

/// Rows of a tensor that torch_dist checkpoints have under a name of their own, behind its name: a
/// part of the input projection or of the convolution of a recurrent layer.
struct SavedRows {
  std::string_view name;
  std::int64_t first = 0, count = 0;
};

/// Returns the rows that Megatron-LM saves apart; none for a tensor that it saves whole.
std::vector<SavedRows> rows_saved_apart(std::string_view name, const Sharding& sharding);

/// Global tensors. Their pieces have bytes in files (Piece::offset).
using ForeignTensors = std::map<std::string, ManifestTensor>;

/// The weights and the states of layers that a model has, and what else places them.
struct DeclaredTensors {
  /// Returns the name in the model of a tensor that Megatron-LM may have saved under another: a
  /// norm stands alone or in the linear layer behind it. Returns other names as they are.
  std::string our_name(std::string name) const;
  TensorKind kind(const std::string& name) const {
    return states.contains(name) ? TensorKind::state : TensorKind::weight;
  }

  std::map<std::string, Sharding> shardings;
  std::set<std::string> states;  ///< those of `shardings` that are no weights
  std::int64_t head_size = 0;
  bool has_own_output = false;  ///< an output layer that is not the embedding
};

/// Adds slices of a rank's tensor, with the states of the optimizer, to the declared tensor `name`.
/// `shape` is that of the rank's tensor with the axes of the slices. Returns false if the elements
/// of one have another order there. Throws a UserError that begins with `place` for other types
/// than those of other ranks.
bool add_rank_tensor(const std::string& name, const RankTensor& tensor, const Shape& shape,
                     const std::vector<TensorSlice>& slices, const DeclaredTensors& declared,
                     const std::string& place, Manifest& manifest);

/// Adds the weights and optimizer states of a torch_dist checkpoint under our names. There layers
/// of one kind are one tensor with the layer as its first axis. The optimizer is left out of the
/// manifest if its states are missing, or have the form of one run's buffers, which depends on its
/// layout. UserErrors name `source` and a tensor that the model does not have.
void add_torch_dist_tensors(const ForeignTensors& theirs, const DeclaredTensors& declared,
                            const std::string& source, Manifest& manifest);

/// Where a torch_dist checkpoint has one of our tensors.
struct TorchDistPlace {
  std::string name = {};
  Shape stack = {}, offset = {};  ///< the axes before those of ours, and where ours is along them
};

/// Returns the place of a tensor of the model, or of what the optimizer keeps for it in `state`
/// ("exp_avg."). `num_stacked` layers are one tensor; 0: each layer has names of its own.
TorchDistPlace torch_dist_place(const std::string& state, std::string name,
                                std::int64_t num_stacked);

/// The part of a tensor that a tensor of an fsdp_dtensor checkpoint is. Such a checkpoint is a
/// state dict of DTensors that PyTorch saved, "model.module.NAME" and "optimizer.state.NAME.STATE",
/// where each expert and each half of a gated linear layer is a tensor of its own.
struct DtensorPart {
  std::string name = {};                    ///< as a torch_dist checkpoint has it
  std::optional<std::int64_t> expert = {};  ///< along an axis in front of the others
  std::optional<std::int64_t> half = {};    ///< 0 or 1 along the first axis of what it has
  bool operator==(const DtensorPart&) const = default;
};

/// Returns nullopt for a tensor that is no weight and no state of a weight.
std::optional<DtensorPart> dtensor_part(const std::string& name);

/// Adds a part to the tensor that it belongs to. Throws a UserError that begins with `place` if
/// its type is not that of the other parts.
void add_dtensor_part(const DtensorPart& part, ManifestTensor tensor, const std::string& place,
                      ForeignTensors& tensors);

}  // namespace megatron
