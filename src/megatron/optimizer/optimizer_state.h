// One kind of optimizer state (exp_avg, …) for every piece of a rank, stored in float32, float64,
// bfloat16, or float16 or 8 bits with scales. Pieces may be offloaded (state_offload.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/state_code.h"
#include "megatron/optimizer/state_offload.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// How a state is stored: a type, or 8 bits with a code and a scale for each block.
struct StateFormat {
  // Implicit, because a type alone is a format.
  StateFormat(at::ScalarType type) : dtype(type) {}  // NOLINT(google-explicit-constructor)
  StateFormat(at::ScalarType type, const kernels::StateCode* of) : dtype(type), code(of) {}

  at::ScalarType dtype;
  const kernels::StateCode* code = nullptr;  ///< of 8-bit states, which are bytes

  /// Returns whether each kernels::kStateBlock elements have a scale.
  bool has_scales() const { return code != nullptr || dtype == at::kHalf; }
  /// Returns the type that visitors and checkpoints see.
  at::ScalarType visible_dtype() const { return has_scales() ? at::kFloat : dtype; }
};

/// Returns the format that --exp-avg-dtype names: fp32, bf16, fp16, int8 or fp8. States of
/// non-negative numbers have a code of their own, in which no positive number becomes zero: Adam
/// divides by the root of its second moment.
StateFormat state_format(const std::string& name, bool is_non_negative);

class OptimizerState {
 public:
  /// `flat` holds the state of `piece`, flattened to one dimension.
  using Visitor =
      std::function<void(const ParameterPiece& piece, const std::string& state, at::Tensor& flat)>;

  /// `read` returns the state of `piece` as Visitor gets it; its dtype is `type`.
  using Lister = std::function<void(const ParameterPiece& piece, const std::string& state,
                                    at::ScalarType type, std::function<at::Tensor()> read)>;

  /// Creates states of zeros for the pieces of the parameters that `selects` selects. A float16
  /// or 8-bit state has a scale for each kernels::kStateBlock elements of a parameter.
  OptimizerState(std::string name, const ParamStore& store, StateFormat format,
                 const std::function<bool(const Parameter&)>& selects,
                 const std::shared_ptr<const StateOffload>& offload = nullptr);

  const std::string& name() const { return name_; }
  const StateFormat& format() const { return format_; }
  /// Returns one flat tensor per piece of the store; undefined for pieces that are not selected or
  /// are offloaded.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// Returns the scales, one tensor per piece; empty unless the format has scales.
  const std::vector<at::Tensor>& scales() const { return scales_; }
  /// Returns the state of the offloaded pieces; null when nothing is offloaded.
  OffloadedArray* offloaded() const { return offloaded_.get(); }
  /// Returns the bytes in memory.
  std::int64_t num_bytes() const;
  /// Calls `visitor` for each piece with its state, which the visitor may read and fill. A state
  /// with scales is passed as a float32 tensor; the conversion keeps its values unchanged.
  void visit(const Visitor& visitor);
  /// Calls `lister` for each piece. The readers are valid as long as this object, and read best in
  /// the order in which they were listed.
  void list(const Lister& lister);

 private:
  /// Returns whether this state has piece `index`.
  bool has(std::size_t index) const {
    return tensors_[index].defined() || (offloaded_ && offloaded_->contains(index));
  }
  /// The stored elements of a piece, and their scales.
  struct Stored {
    at::Tensor elements, scales;
  };
  Stored load(std::size_t index);
  /// Converts between stored elements with scales, on the host, and float32.
  at::Tensor decode(const Stored& stored) const;
  Stored encode(const at::Tensor& values) const;
  void store(std::size_t index, const Stored& stored);
  at::Tensor read(std::size_t index);

  std::string name_;
  std::vector<ParameterPiece> pieces_;
  StateFormat format_;
  std::vector<at::Tensor> storage_;  ///< The storage of all states, then that of all scales.
  std::vector<at::Tensor> tensors_, scales_;
  std::unique_ptr<OffloadedArray> offloaded_;
};

}  // namespace megatron
