// One rank's part of a tiny model with an optimizer, of any layout and precision, whose values are
// known from the elements of the global tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/tiny_run.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "support/data_parallel_ranks.h"
#include "support/global_tensor.h"
#include "support/gpt_model.h"

namespace megatron {

struct RunType {
  at::ScalarType dtype = at::kFloat;
  bool is_tied = false, has_experts = false;
};

inline TransformerConfig model_of(const RunType& type) {
  TransformerConfig model = tiny_llama();
  model.num_layers = 4;
  model.untie_embeddings_and_output_weights = !type.is_tied;
  if (type.has_experts) {
    model.add_bias_linear = true;
    model.moe.num_experts = 4;
    set_experts(model, {0, 1, 1, 0});
    model.moe.ffn_hidden_size = 8;
    model.moe.shared_expert_intermediate_size = 8;
    model.moe.shared_expert_gate = true;
    model.moe.router_score_function = RouterScore::sigmoid;
    model.moe.router_enable_expert_bias = true;
  }
  return model;
}

/// Values that use all bits of float32 and depend only on the element of the global tensor, not on
/// the layout.
inline at::Tensor expected_local(const Parameter& parameter, double scale) {
  const at::Tensor global = irregular_like(parameter, scale).to(at::kFloat);
  const at::Tensor local = at::zeros(parameter.local_shape(), at::kFloat);
  for_each_slice(parameter, local, global,
                 [](at::Tensor mine, const at::Tensor& whole) { mine.copy_(whole); });
  return local;
}

inline double scale_of(const std::string& state) { return state == "exp_avg" ? 0.3 : 0.7; }

inline std::optional<ReplicaGroups> experts_of(const DataLayout& layout, const Rank& rank,
                                               Communicators& communicators) {
  if (rank.ep.size == 1 && rank.etp.size == rank.tp.size) return std::nullopt;
  ReplicaGroups groups = expert_groups(layout.config(), rank, &communicators);
  groups.data_parallel.bucket_elements = layout.bucket_elements;
  return groups;
}

/// One rank's model, weights and optimizer.
struct RankRun {
  RankRun(const DataLayout& layout, const RunType& type, const Rank& rank,
          Communicators& communicators)
      : place(rank), stages(pipeline_layout(layout.config(), model_of(type).num_layers)) {
    settings.model = model_of(type);
    settings.optimizer->optimizer = "adam";
    model = make_gpt_model(*settings.model, rank,
                           {.vocab_pad_multiple = 8, .dtype = type.dtype, .layout = &stages});
    store = std::make_unique<ParamStore>(
        declared_parameters(*model),
        ParamStore::Options{.dtype = type.dtype,
                            .grad_dtype = at::kFloat,
                            .data_parallel = data_parallel_of(layout, rank, communicators),
                            .model = rank.model,
                            .experts = experts_of(layout, rank, communicators)});
    optimizer = make_optimizer(*settings.optimizer, *store);
  }
  void fill() {
    MainParameters& main = optimizer->main_parameters();
    for (std::size_t i = 0; i < main.tensors().size(); ++i)
      main.tensors()[i].copy_(main.pieces()[i].of(expected_local(*main.pieces()[i].parameter, 1)));
    main.copy_main_params_to_model_params();
    for (Parameter* parameter : store->parameters()) {
      if (!parameter->is_trained())
        at::Tensor(parameter->value()).copy_(expected_local(*parameter, 1));
    }
    optimizer->visit_state(
        [](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
          flat.copy_(piece.of(expected_local(*piece.parameter, scale_of(state))));
        });
    optimizer->set_num_steps(7);
  }
  void expect_filled(const std::string& what) {
    for (const Parameter* parameter : store->parameters()) {
      const at::Tensor expected = expected_local(*parameter, 1);
      EXPECT_TRUE(at::equal(parameter->value(), expected.to(parameter->value().scalar_type())))
          << what << ": " << parameter->name();
      const at::Tensor precise =
          parameter->spec().tags.precise ? parameter->precise_value().to(at::kFloat) : expected;
      EXPECT_TRUE(at::equal(precise, expected)) << what << ": precise " << parameter->name();
    }
    MainParameters& main = optimizer->main_parameters();
    for (std::size_t i = 0; i < main.tensors().size(); ++i) {
      const Parameter& parameter = *main.pieces()[i].parameter;
      EXPECT_TRUE(at::equal(main.tensors()[i], main.pieces()[i].of(expected_local(parameter, 1))))
          << what << ": main " << parameter.name();
    }
    optimizer->visit_state(
        [&](const ParameterPiece& piece, const std::string& state, at::Tensor& flat) {
          EXPECT_TRUE(at::equal(flat, piece.of(expected_local(*piece.parameter, scale_of(state)))))
              << what << ": " << state;
        });
    EXPECT_EQ(optimizer->num_steps(), 7);
  }
  SaveRequest request(FileSystem* files = nullptr) const {
    return {.model = &*settings.model,
            .settings = &settings,
            .weights = store.get(),
            .optimizer = optimizer.get(),
            .progress = {.iteration = 5},
            .files = files,
            .world = place.world};
  }

  Rank place;
  PipelineLayout stages;
  Settings settings;
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

}  // namespace megatron
