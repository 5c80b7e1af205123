// Compares the first step of a rank of a mesh with that of one rank.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "megatron/params/param_store.h"
#include "megatron/training/layout_check/reference_step.h"

namespace megatron {

struct Rank;

/// Elements of one tensor that no rank has.
struct Gap {
  CheckedKind kind = CheckedKind::activation;
  std::string name;  ///< of the op or the parameter
  std::int64_t num_missing = 0, num_elements = 0;
  Shape first = {};  ///< coordinates of the first missing element
};

/// Which elements of the step on one rank the ranks of a mesh have compared. An element that no
/// rank holds would otherwise never be missed: a lost shard, a layer that no stage has. All ranks
/// share one object; its methods are thread-safe.
class Coverage {
 public:
  /// Marks the slices of a parameter's tensor.
  void add(CheckedKind kind, const std::string& name, const at::Tensor& whole,
           const std::vector<TensorSlice>& slices);
  /// Marks the part of an op's output that `indices` select (tensor_difference.h) for the
  /// microbatch whose first sample is `ordinal`.
  void add(const std::string& op, std::int64_t ordinal, const at::Tensor& whole,
           const std::vector<at::Tensor>& indices);

  /// Returns the tensors of the reference of which some rank lacks a part, in the order of kinds.
  /// Ops of which no rank has compared anything, and those of `not_compared`, are left out.
  std::vector<Gap> gaps(const ReferenceStep& reference,
                        const std::set<std::string>& not_compared) const;

 private:
  /// Kind, name, and of activations the first sample; else 0.
  using Key = std::tuple<CheckedKind, std::string, std::int64_t>;
  at::Tensor& mask_of(const Key& key, const at::Tensor& whole);
  void add_gap(const Key& key, const at::Tensor& whole, std::vector<Gap>& gaps) const;

  mutable std::mutex mutex_;
  std::map<Key, at::Tensor> masks_;  ///< uint8 of the shape of the whole: 1 where compared
};

/// One value of a rank that differs from the reference by more than rounding.
struct FoundDifference {
  CheckedKind kind = CheckedKind::loss;
  std::string name;  ///< of the op or the parameter
  std::int64_t rank = 0;
  double relative = 0;     ///< the largest difference ÷ the largest value of its kind
  TensorDifference worst;  ///< coordinates: of an activation row, sample of the step, channel
};

/// What a rank found.
struct RankFindings {
  std::vector<FoundDifference> differences;
  std::int64_t num_compared = 0;         ///< values that were compared
  double largest_relative = 0;           ///< of those that agree
  std::set<std::string> not_compared{};  ///< ops whose rows have no place in the reference
};

class StepComparer final : public StepObserver {
 public:
  /// All arguments must outlive this. What is compared is added to `coverage`. `tolerance` bounds
  /// relative differences.
  StepComparer(const ReferenceStep& reference, const Rank& rank, const ParamStore& weights,
               Coverage& coverage, double tolerance);

  void activation(const std::string& op, const Microbatch& microbatch,
                  const at::Tensor& output) override;
  void tensor(CheckedKind kind, const Parameter& parameter, const at::Tensor& value) override;
  void loss(double found);
  void grad_norm(double found);

  const RankFindings& findings() const { return findings_; }

 private:
  void number(CheckedKind kind, double found, double expected);
  void judge(CheckedKind kind, const std::string& name, TensorDifference worst, double scale);

  const ReferenceStep& reference_;
  const Rank& rank_;
  const ParamStore& weights_;
  Coverage& coverage_;
  double tolerance_;
  std::map<CheckedKind, double> largest_;  ///< magnitude of a kind in the reference
  RankFindings findings_;
};

}  // namespace megatron
