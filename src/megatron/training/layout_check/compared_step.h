// Compares the first step of a rank of a mesh with that of one rank.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "megatron/params/param_store.h"
#include "megatron/training/layout_check/coverage.h"
#include "megatron/training/layout_check/observed_step.h"
#include "megatron/training/layout_check/reference_step.h"

namespace megatron {

struct Rank;

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
  void initial_weight(const Parameter& parameter, const at::Tensor& value) override;
  void gradient(const Parameter& parameter, const at::Tensor& gradient) override;
  void updated_weight(const Parameter& parameter, const at::Tensor& value) override;
  void loss(double found);
  void grad_norm(double found);

  const RankFindings& findings() const { return findings_; }

 private:
  void weight(CheckedKind kind, const Parameter& parameter, const at::Tensor& value);
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
