// Parameters tagged expert reduce, shard, count and clip over groups of their own: a step has the
// bits of one rank. All numbers are multiples of 1/64 with few bits, so that sums are exact in any
// order.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <mutex>

#include "megatron/base/error.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/optimizer/replica_check.h"
#include "megatron/parallel/rank.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"
#include "support/global_tensor.h"

namespace megatron {
namespace {

constexpr int kSteps = 2;
constexpr ParameterTags kExpert{.expert = true};

struct ExpertModel : BareModule {
  explicit ExpertModel(const Rank& rank) {
    const std::vector<Axis> axes{rank.ep, rank.etp};
    add("dense", {Sharding::split({12, 33}, 0), Init::normal(1), {}}, rank.tp);
    add_over(
        "experts.fc1",
        {{{4, 24, 10}, {{.dim = 0}, {.dim = 1, .blocks = {{12}, {12}}}}}, Init::normal(1), kExpert},
        axes);
    add_over("experts.fc2", {{{4, 10, 12}, {{.dim = 0}, {.dim = 2}}}, Init::normal(1), kExpert},
             axes);
    add("norm", {Sharding::replicated({700}), Init::ones(), {.no_decay = true}}, rank.tp);
  }
};

/// The gradient of the whole batch, of global shape.
at::Tensor whole_gradient(const Parameter& parameter, int step) {
  const Shape& shape = parameter.sharding().global_shape;
  const at::Tensor index = at::arange(num_elements(shape), at::kLong).view(shape);
  return ((index * 7 + step * 5).remainder(11) - 5).to(at::kDouble) / 8;
}

struct ExpertLayout {
  MeshSizes sizes;
  std::int64_t world_size = 1;
  bool distributed_optimizer = false, averages = false;
};

struct StepOutcome {
  std::map<std::string, at::Tensor> weights;
  std::vector<double> numbers;
};

StepOutcome run(const ExpertLayout& layout) {
  StepOutcome outcome;
  GlobalTensors weights;
  std::mutex mutex;
  const Mesh mesh(layout.sizes, layout.world_size);
  run_rank_threads(layout.world_size, [&](Communicators& communicators) {
    const Rank rank = make_rank(mesh, communicators);
    ParallelConfig config;
    config.use_distributed_optimizer = layout.distributed_optimizer;
    config.ddp_average_in_collective = layout.averages;
    ExpertModel model(rank);
    ParamStore store(declared_parameters(model),
                     {.data_parallel = data_parallel(config, rank, &communicators),
                      .model = rank.model,
                      .experts = expert_groups(config, rank, &communicators)});
    OptimizerConfig optimizer_config;
    optimizer_config.clip_grad = 0.5;
    const auto optimizer = make_optimizer(optimizer_config, store);
    optimizer->main_parameters().initialize(5);
    std::vector<double> numbers;
    for (int step = 0; step < kSteps; ++step) {
      store.zero_gradients();
      for (Parameter* parameter : store.parameters()) {
        // Each replica holds an equal part of the sum. With averages, the sum is over all dp-cp
        // ranks' means: experts have gradients of the tokens of all of them.
        const double replicas = parameter->spec().tags.expert ? rank.edp.size : rank.dp_cp.size;
        const double scale = layout.averages ? rank.dp_cp.size : 1;
        at::Tensor local = at::zeros(parameter->local_shape());
        for_each_slice(*parameter, local, whole_gradient(*parameter, step) * (scale / replicas),
                       [](at::Tensor mine, const at::Tensor& part) { mine.copy_(part); });
        parameter->contribute(local);
      }
      store.finalize_gradients();
      const StepResult result =
          optimizer->step({.lr = 0.01, .weight_decay = 0.1, .count_zeros = true});
      numbers.insert(numbers.end(), {result.applied ? 1.0 : 0.0, result.grad_norm,
                                     static_cast<double>(result.num_zeros)});
    }
    optimizer->main_parameters().wait_all_gather_params();
    check_replicas(store);
    for (const Parameter* parameter : store.parameters())
      weights.put(*parameter, parameter->value());
    const std::lock_guard lock(mutex);
    if (outcome.numbers.empty()) outcome.numbers = numbers;
    EXPECT_EQ(outcome.numbers, numbers) << "rank " << rank.index;
  });
  outcome.weights = weights.take();
  return outcome;
}

TEST(ExpertGroups, StepsHaveTheBitsOfOneRank) {
  const StepOutcome expected = run({});
  EXPECT_EQ(expected.numbers[0], 1);
  const ExpertLayout layouts[] = {
      {{.ep = 2}, 2},
      {{.ep = 2}, 4},
      {{.ep = 2}, 4, /*distributed_optimizer=*/true},
      {{.ep = 4}, 4, true},
      {{.tp = 2, .ep = 2, .etp = 1}, 4, true},
      {{.tp = 2, .ep = 2}, 4, true},
      {{.ep = 2}, 4, true, /*averages=*/true},
      {{.ep = 2}, 4, false, true},
      {{.tp = 2, .ep = 2, .etp = 2}, 8, true},
  };
  for (const ExpertLayout& layout : layouts) {
    SCOPED_TRACE("tp" + std::to_string(layout.sizes.tp) + " ep" + std::to_string(layout.sizes.ep) +
                 " of " + std::to_string(layout.world_size));
    const StepOutcome got = run(layout);
    EXPECT_EQ(got.numbers, expected.numbers);
    for (const auto& [name, tensor] : expected.weights)
      EXPECT_TRUE(at::equal(got.weights.at(name), tensor)) << name;
  }
}

/// Ranks of edp must hold the same experts.
TEST(ExpertGroups, ReplicasOfExpertsAreCompared) {
  const Mesh mesh({.ep = 2}, 4);
  EXPECT_THROW(run_rank_threads(4,
                                [&](Communicators& communicators) {
                                  const Rank rank = make_rank(mesh, communicators);
                                  ExpertModel model(rank);
                                  ParamStore store(
                                      declared_parameters(model),
                                      {.data_parallel = data_parallel({}, rank, &communicators),
                                       .model = rank.model,
                                       .experts = expert_groups({}, rank, &communicators)});
                                  store.initialize(1);
                                  EXPECT_NO_THROW(check_replicas(store));
                                  if (rank.index == 2) store.find("experts.fc1")->value().fill_(0);
                                  check_replicas(store);
                                }),
               HardwareError);
}

}  // namespace
}  // namespace megatron
