// Runs passes without gradients through a model, whose stages may be on several ranks. Generation
// and scoring need no pipeline code.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "megatron/config/pipeline_layout.h"
#include "megatron/models/model.h"
#include "megatron/parallel/axis.h"
#include "megatron/schedules/schedule.h"

namespace megatron {

class ParamStore;
struct TransformerConfig;

class ModelRunner {
 public:
  /// Runs a model that is whole on this rank and must outlive the runner.
  ModelRunner(Model& model) : model_(model) {}
  /// Runs a model of which this rank holds `stages` under `layout`, with their weights. Both must
  /// outlive the runner. The caches of a layer stay on the rank of its stage.
  /// The ranks of `cp` hold the same stages, and share the rows of long passes.
  ModelRunner(Model& stages, ParamStore& weights, const PipelineLayout& layout, Axis pp,
              Axis cp = {});

  Model& model() const { return model_; }  ///< this rank's stages
  bool is_whole() const { return pp_.size == 1; }
  const TransformerConfig& config() const { return model_.config(); }
  /// Returns the microbatch of a pass over sequences of token ids with caches: the rows that this
  /// rank computes (own_rows()).
  Microbatch rows_of(const std::vector<std::span<const std::int64_t>>& sequences,
                     const Caches& caches) const {
    return own_rows(microbatch_of(sequences), caches, cp_);
  }
  /// Returns what a pass wants, other than the loss, and advances its caches. The result is bit for
  /// bit the same on every rank: the last stage broadcasts it. Collective over pp, and over cp for
  /// rows_of() several ranks.
  at::Tensor infer(const Pass& pass) const;

 private:
  Model& model_;
  ParamStore* weights_ = nullptr;
  Axis pp_{.name = "pp"}, cp_{.name = "cp"};
  Schedule schedule_;           ///< one microbatch forward through all stages
  std::int64_t last_rank_ = 0;  ///< of pp; has the output layer
};

}  // namespace megatron
