// Maps our parameters to the tensors of a Hugging Face family, by its rows: each tensor is block i,
// expert e, transposed, of a parameter. A name without a counterpart is an error in both
// directions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/models/hf/hf_family.h"
#include "megatron/params/sharding.h"

namespace megatron {

/// The part of a parameter that one foreign tensor holds, by the blocks and repeats of the
/// parameter's Sharding (params/sharding.h).
struct TensorPart {
  Blocks blocks = {};
  bool is_transposed = false;               ///< of the last two dimensions; vectors are as they are
  bool is_row = false;                      ///< the foreign tensor is a matrix of one row
  std::optional<std::int64_t> expert = {};  ///< the index along dimension 0, which is dropped
  bool is_interleaved = false;  ///< the blocks alternate along the last foreign dimension
  std::int64_t num_runs = 1;    ///< of foreign rows, each with an equal part of every block

  /// Returns the slices of the parameter, each with its place in oriented(), or in what that is
  /// with its blocks one after the other.
  std::vector<TensorSlice> slices(const Sharding& ours) const;
  /// Returns the shape of the foreign tensor.
  Shape shape(const Sharding& ours) const;
  /// Returns a view of the foreign tensor with the dimensions of the parameter.
  at::Tensor oriented(at::Tensor theirs) const;
  /// Returns a view of what a part of one of the slices() is in oriented().
  at::Tensor region(at::Tensor oriented, const Shape& local_offset, const Shape& shape) const;
  /// Returns the foreign tensor that a parameter with this value gives.
  at::Tensor cut(const at::Tensor& value, const Sharding& ours) const;
};

struct HfTensor {
  std::string name = {};
  TensorPart part = {};
};

/// A parameter of ours and the Hugging Face tensors it consists of.
struct WeightMapping {
  std::string ours = {};
  std::vector<HfTensor> theirs = {};
  std::vector<HfTensor> alternatives = {};  ///< in place of `theirs`, if a folder has them
  std::vector<HfTensor> copies = {};        ///< repeat the first of `theirs`; may be absent
};

/// The layers of multi-token prediction, by their numbers among all layers, and the kind of MLP.
struct HfDepths {
  std::int64_t first = 0, count = 0;
  bool is_gated = false;
  const TransformerConfig* model = nullptr;  ///< for families with TensorRow::num_runs
};

/// Returns the mappings of all our parameters; each expert of a model has tensors of its own.
/// Throws UserError naming the parameters that the family has no tensor for, and those that share
/// one.
std::vector<WeightMapping> map_weights(const HfFamily& family,
                                       std::span<const std::string> our_names,
                                       std::int64_t num_experts, const HfDepths& depths = {});

/// Returns whether the family has a tensor for a parameter or a state of ours.
bool has_hf_tensor(const HfFamily& family, std::string_view our_name);

/// Returns the family's full name of a tensor; base models omit the prefix, and the first
/// checkpoints of BERT have the names of TensorFlow for norms.
std::string full_hf_name(const HfFamily& family, const std::string& name);

/// Returns true for buffers that hold no weights (rotary frequencies, GPT-2's causal masks) and for
/// weights that the family ignores.
bool is_hf_buffer(const HfFamily& family, std::string_view full_name);

/// Returns the name of the embedding, which the output layer equals when they are tied.
std::string hf_embedding_name(const HfFamily& family);

}  // namespace megatron
