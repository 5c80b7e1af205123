// The weights that updates work on. Where the model computes in 16 bits these are float32 copies, of which the model's weights are the rounding;
// else they are the model's own weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/transformer/param_store.h"

namespace megatron {

class MainParameters {
 public:
  /// Copies the weights of `store`, which must outlive this, when they have 16 bits.
  explicit MainParameters(ParamStore& store);
  MainParameters(const MainParameters&) = delete;
  MainParameters& operator=(const MainParameters&) = delete;
  ~MainParameters();

  /// Whether there are copies.
  bool are_separate() const { return are_separate_; }
  /// In canonical order; tensor i belongs to parameter i.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  /// Draws every weight by its coordinates and rounds the model's from them.
  void initialize(std::uint64_t seed);
  /// Takes the model's weights, after those were changed from outside.
  void take_weights();
  /// Rounds the model's weights from these, after these were changed from outside.
  void write_weights();
  /// √ of the per-tensor float64 sums of squares, added in canonical order.
  double norm() const;

 private:
  std::vector<Parameter*> parameters_;
  std::vector<at::Tensor> tensors_;
  bool are_separate_;
};

}  // namespace megatron
