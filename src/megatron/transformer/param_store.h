// Binds declared parameters to contiguous buckets of values and gradients, initialises them by coordinates and keeps their gradients' books.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/transformer/module.h"

namespace megatron {

/// A contiguous run of parameters: `value` and `grad`, each of one dtype, are flat, parameter i starts at element offsets[i] (multiples of 16
/// elements).
struct ParamBucket {
  at::Tensor value, grad;
  std::vector<Parameter*> parameters;
  std::vector<std::int64_t> offsets;
};

class ParamStore : private GradSink {
 public:
  struct Options {
    c10::Device device{c10::kCPU};
    c10::ScalarType dtype = c10::kFloat;             ///< of the weights that layers compute with
    std::optional<c10::ScalarType> grad_dtype = {};  ///< of the main gradients; none: that of the weights
    bool with_gradients = true;                      ///< false for inference: no gradient storage
  };
  /// Allocates storage for every parameter below `model` and binds it. The model must outlive the store.
  ParamStore(Module& model, Options options);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;
  ~ParamStore() override;

  /// All parameters in canonical order: ascending by name. Sums over parameters are taken in this order on every layout.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  /// Null when there is none of that name.
  Parameter* find(std::string_view name) const;
  const std::vector<ParamBucket>& buckets() const { return buckets_; }
  std::int64_t num_parameters() const;  ///< true (unpadded) elements held by this rank

  /// Draws every weight by its coordinates; padding rows are zero.
  void initialize(std::uint64_t seed);
  /// Makes every gradient logically zero; the first contribution overwrites.
  void begin_gradients();
  /// Zeroes the gradients nothing contributed to; gradients are then valid.
  void finish_gradients();

 private:
  void contribute(Parameter& parameter, std::function<void(at::Tensor& grad, bool fresh)> write) override;

  std::vector<Parameter*> parameters_;
  std::unordered_map<std::string, Parameter*> by_name_;
  std::vector<ParamBucket> buckets_;
};

}  // namespace megatron
