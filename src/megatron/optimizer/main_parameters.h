// The main weights, which the optimizer updates. When the model computes in 16 bits they are
// float32 copies and the model's weights are rounded from them; otherwise they are the model's own
// weights. With a distributed optimizer, a rank holds the main weights of its pieces and, whole,
// those of parameters that layers read in float32, unless weights are sharded as well. Copies may
// lie outside memory (state_offload.h), except those that layers read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/optimizer/param_gather.h"
#include "megatron/optimizer/parameter_sums.h"
#include "megatron/optimizer/state_offload.h"
#include "megatron/params/param_store.h"

namespace megatron {

class MainParameters {
 public:
  /// Creates float32 copies when the weights of `store` have 16 bits. `store` must outlive this.
  explicit MainParameters(ParamStore& store, const StateOffloadOptions& offload = {});
  MainParameters(const MainParameters&) = delete;
  MainParameters& operator=(const MainParameters&) = delete;
  ~MainParameters();

  /// Returns true when the main weights are separate float32 copies.
  bool has_fp32_copies() const { return has_fp32_copies_; }
  const ParamStore& store() const { return store_; }
  /// Returns this rank's pieces in canonical order. tensors()[i], flat, is the main weights of
  /// piece i; undefined when they are offloaded.
  const std::vector<ParameterPiece>& pieces() const { return store_.pieces(); }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Returns the main weights of piece `index`, flat; a copy of them if they are offloaded.
  at::Tensor read(std::size_t index);
  /// Replaces the main weights of piece `index`.
  void write(std::size_t index, const at::Tensor& flat);
  /// Returns what is offloaded of the optimizer's state; null when nothing is.
  const std::shared_ptr<const StateOffload>& offload() const { return offload_; }
  /// Returns the offloaded main weights; null when there are none.
  OffloadedArray* offloaded() const { return offloaded_.get(); }
  /// Returns the reducer of sums over each parameter of the whole model.
  const ParameterSums& sums() const { return sums_; }
  /// Brings the model's weights of a bucket into memory, where an update may round main weights to
  /// own_value until close_model_values(). Does nothing unless they are offloaded.
  void open_model_values(std::size_t bucket) const { store_.open_values(bucket); }
  void close_model_values(std::size_t bucket) const { store_.close_values(bucket); }
  /// Returns the size of the float32 copies in memory in bytes; 0 without copies.
  std::int64_t num_bytes() const;

  /// Initializes every weight from `seed` and its coordinates, and rounds the model's weights.
  void initialize(std::uint64_t seed);
  /// Copies the model's weights to the main weights. Call it after the model's weights changed from
  /// outside.
  void copy_model_params_to_main_params();
  /// Rounds the main weights to the model's weights. Call it after the main weights changed from
  /// outside. Collective over the store's shard axis.
  void copy_main_params_to_model_params();
  /// All-gathers the model's weights after an update of the pieces, or forgets what was gathered
  /// before it when weights are sharded. Collective over the store's shard axis.
  void all_gather_params();
  /// Waits until every pending all-gather of weights is complete.
  void wait_all_gather_params();
  /// Returns the 2-norm of all main weights: per-tensor float64 sums of squares are added in
  /// canonical order. Collective over the store's shard and model axes.
  double norm();

 private:
  /// Completes this rank's slices of sharded weights when replicas update parts of them, and
  /// forgets what was gathered from slices before. Collective over the store's replica axis.
  void gather_slices();
  /// Returns the values of a bucket that are copied to float32, for reading.
  at::Tensor copied_values(std::size_t bucket) const;
  void bind_tensors();

  ParamStore& store_;
  bool has_fp32_copies_;
  /// One per bucket; empty when has_fp32_copies_ is false. Undefined for a bucket of which pieces
  /// are offloaded: the copies of its other pieces are in tensors_ alone.
  std::vector<at::Tensor> fp32_copies_;
  std::vector<at::Tensor> tensors_;
  ParameterSums sums_;
  std::shared_ptr<const StateOffload> offload_;
  std::unique_ptr<OffloadedArray> offloaded_;
  std::optional<ParamGather> param_gather_;
};

}  // namespace megatron
