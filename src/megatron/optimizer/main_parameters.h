// The weights that updates work on. Where the model computes in 16 bits these are float32 copies,
// of which the model's weights are the rounding; else they are the model's own weights. With a
// distributed optimizer a rank has those of its pieces, and all of those that layers read
// precisely.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "megatron/optimizer/param_gather.h"
#include "megatron/optimizer/parameter_sums.h"
#include "megatron/params/param_store.h"

namespace megatron {

class MainParameters {
 public:
  /// Copies the weights of `store`, which must outlive this, when they have 16 bits.
  explicit MainParameters(ParamStore& store);
  MainParameters(const MainParameters&) = delete;
  MainParameters& operator=(const MainParameters&) = delete;
  ~MainParameters();

  /// Whether there are copies.
  bool has_fp32_copies() const { return has_fp32_copies_; }
  /// In canonical order; tensor i, flat, is the main weights of piece i.
  const std::vector<ParameterPiece>& pieces() const { return store_.pieces(); }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Sums over the parameters of the whole model.
  const ParameterSums& sums() const { return sums_; }
  /// Bytes of the copies.
  std::int64_t num_bytes() const;

  /// Draws every weight by its coordinates and rounds the model's from them.
  void initialize(std::uint64_t seed);
  /// Takes the model's weights, after those were changed from outside.
  void copy_model_params_to_main_params();
  /// Rounds the model's weights from these, after these were changed from outside. Collective over
  /// the store's shard axis.
  void copy_main_params_to_model_params();
  /// After an update of the pieces: makes the model's weights whole. Collective over the store's
  /// shard axis.
  void all_gather_params();
  /// Waits for weights that are still on their way.
  void wait_all_gather_params();
  /// √ of the per-tensor float64 sums of squares, added in canonical order. Collective over shard
  /// and model axis.
  double norm() const;

 private:
  /// The copies of a bucket: its own slice, or the whole of a precise one.
  at::Tensor own_slice(std::size_t bucket, const at::Tensor& value) const;

  ParamStore& store_;
  bool has_fp32_copies_;
  std::vector<at::Tensor> fp32_copies_;  ///< of each bucket; empty unless separate
  std::vector<at::Tensor> tensors_;
  ParameterSums sums_;
  std::optional<ParamGather> param_gather_;
};

}  // namespace megatron
