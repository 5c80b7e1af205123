// Data-parallel ranks, with and without a distributed optimizer, produce after every step the same
// bits as one rank with the same gradients.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "megatron/base/offload_file.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/parallel/rank.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"

namespace megatron {
namespace {

constexpr int kMicrobatches = 2, kBadStep = 1, kSteps = 3;

/// Parameters that straddle slices and chunks: odd sizes, one longer than two chunks, one shorter
/// than a block.
struct OddModel : BareModule {
  OddModel() {
    add("embedding", {Sharding::vocabulary({130, 40}, 64),
                      Init::normal(1),
                      {.embedding = true, .precise = true}});
    add("norm", {Sharding::replicated({77}), Init::ones(), {.no_decay = true, .precise = true}});
    add("large", normal_spec({331, 499}));
    add("bias", normal_spec({5}, {.no_decay = true}));
    add("square", normal_spec({97, 97}));
    add("unused", normal_spec({300}));
    add("last", normal_spec({70, 300}));
  }
};

struct Precision {
  const char* name;
  at::ScalarType weights = at::kFloat, gradients = at::kFloat;
  const char* optimizer = "adam";
  const char* states = "fp32";
  LossScaling scaling = {};
};

const Precision kPrecisions[] = {
    {"fp32"},
    {"sgd", at::kFloat, at::kFloat, "sgd"},
    {"bf16", at::kBFloat16},
    {"bf16_gradients", at::kBFloat16, at::kBFloat16},
    {"fp16",
     at::kHalf,
     at::kFloat,
     "adam",
     "fp16",
     {.initial = 4, .is_dynamic = true, .min = 1, .window = 2, .hysteresis = 1}},
    {"int8", at::kBFloat16, at::kFloat, "adam", "int8"},
    {"fp64", at::kDouble, at::kDouble},
};

OptimizerConfig config_of(const Precision& precision) {
  OptimizerConfig config;
  config.optimizer = precision.optimizer;
  config.clip_grad = 0.5;
  config.exp_avg_dtype = config.exp_avg_sq_dtype = precision.states;
  return config;
}

/// Rank `rank`'s contribution to a gradient. The values are multiples of 1/8 below 4, so that sums
/// over ranks and microbatches are exact in every type and order.
at::Tensor gradient(const Parameter& parameter, int step, int microbatch, std::int64_t rank,
                    std::int64_t ranks) {
  const Shape& shape = parameter.sharding().global_shape;
  const at::Tensor index = at::arange(num_elements(shape), at::kLong).view(shape);
  const at::Tensor total = (index * 7 + step * 5 + microbatch * 3).remainder(11) - 5;
  const at::Tensor mine = ranks == 1  ? total
                          : rank == 0 ? total - (index + step).remainder(3) * (ranks - 1)
                                      : (index + step).remainder(3);
  at::Tensor local = at::zeros(parameter.local_shape(), parameter.grad().options());
  local.narrow(0, 0, shape[0]).copy_(mine.to(at::kDouble) / 8);
  return local;
}

/// Everything that a step changes, assembled from the pieces of all ranks.
struct Outcome {
  std::map<std::string, at::Tensor> tensors;
  std::vector<double> numbers;
};

class Collector {
 public:
  void put(const std::string& name, const ParameterPiece& piece, const at::Tensor& flat) {
    const std::lock_guard lock(mutex_);
    at::Tensor& whole = outcome_.tensors[name + "." + piece.parameter->name()];
    if (!whole.defined())
      whole = at::full({num_elements(piece.parameter->local_shape())}, -77, flat.options());
    whole.narrow(0, piece.first, piece.count).copy_(flat);
  }
  void put_weights(const Rank& rank, const ParamStore& store) {
    for (const Parameter* parameter : store.parameters()) {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, tensor] : {std::pair{"value.", parameter->value()},
                                         std::pair{"precise.", parameter->precise_value()}}) {
        const auto [entry, is_new] =
            outcome_.tensors.try_emplace(name + parameter->name(), tensor.clone());
        EXPECT_TRUE(at::equal(entry->second, tensor))
            << "rank " << rank.index << " differs in " << name << parameter->name();
      }
    }
  }
  void put_numbers(const Rank& rank, const StepResult& result) {
    std::vector<double> numbers{result.applied ? 1.0 : 0.0, result.grad_norm,
                                static_cast<double>(result.num_zeros), result.loss_scale};
    EXPECT_EQ(result.non_finite_parameter, result.applied ? "" : "large") << rank.index;
    const std::lock_guard lock(mutex_);
    std::vector<double>& of_rank = numbers_[rank.index];
    of_rank.insert(of_rank.end(), numbers.begin(), numbers.end());
  }
  void put_norm(const Rank& rank, double norm) {
    const std::lock_guard lock(mutex_);
    numbers_[rank.index].push_back(norm);
  }
  Outcome take() {
    outcome_.numbers = numbers_.at(0);
    for (const auto& [rank, numbers] : numbers_) {
      for (std::size_t i = 0; i < numbers.size(); ++i)
        EXPECT_TRUE(numbers[i] == outcome_.numbers[i] ||
                    (std::isnan(numbers[i]) && std::isnan(outcome_.numbers[i])))
            << "rank " << rank;
    }
    return std::move(outcome_);
  }

 private:
  std::mutex mutex_;
  Outcome outcome_;
  std::map<std::int64_t, std::vector<double>> numbers_;
};

void train(const Rank& rank, ParamStore& store, Optimizer& optimizer, Collector& collector) {
  for (int step = 0; step < kSteps; ++step) {
    store.zero_gradients(kMicrobatches);
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      for (Parameter* parameter :
           store.parameters()) {  // forward reads each parameter, in some order
        EXPECT_EQ(parameter->value().numel(), num_elements(parameter->local_shape()));
      }
      for (Parameter* parameter : store.parameters()) {
        if (parameter->name() == "unused") continue;
        at::Tensor part = gradient(*parameter, step, microbatch, rank.dp.rank, rank.dp.size);
        const bool is_bad =
            step == kBadStep && rank.dp.rank == rank.dp.size - 1 && parameter->name() == "large";
        if (is_bad) part[170][250] = std::numeric_limits<double>::infinity();
        parameter->contribute(part);
        if (parameter->name() == "square")
          parameter->contribute(at::zeros_like(part));  // a second use of the weight
      }
    }
    store.finalize_gradients();
    collector.put_numbers(
        rank, optimizer.step(
                  {.lr = 0.01, .decoupled_lr = 0.02, .weight_decay = 0.1, .count_zeros = true}));
  }
}

/// Offloads a share of the state in small windows; nothing for 0.
StateOffloadOptions offload_of(double fraction) {
  if (fraction == 0) return {};
  return {.store = make_file_offload_store(std::make_shared<OffloadFile>(
              OffloadFile::Options{.folder = std::filesystem::temp_directory_path()})),
          .fraction = fraction,
          .overlaps_copies = fraction < 1,
          .window_elements = 70'000};
}

Outcome run(const DataLayout& layout, const Precision& precision, double offloaded = 0) {
  Collector collector;
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    OddModel model;
    ParamStore store(declared_parameters(model),
                     {.dtype = precision.weights,
                      .grad_dtype = precision.gradients,
                      .data_parallel = data_parallel_of(layout, rank, communicators),
                      .model = rank.model});
    const auto optimizer =
        make_optimizer(config_of(precision), store, precision.scaling, offload_of(offloaded));
    const auto& offload = optimizer->main_parameters().offload();
    EXPECT_EQ(offload && !offload->windows().empty(), offloaded > 0);
    if (offloaded == 1) {
      EXPECT_EQ(optimizer->num_state_bytes(), 0);
    }
    optimizer->main_parameters().initialize(5);
    train(rank, store, *optimizer, collector);
    collector.put_norm(rank, optimizer->main_parameters().norm());
    collector.put_weights(rank, store);
    MainParameters& main = optimizer->main_parameters();
    for (const ParameterPiece& piece : store.pieces()) {
      if (!layout.whole_parameters) continue;
      EXPECT_EQ(piece.count, piece.parameter->value().numel()) << piece.parameter->name();
    }
    const std::shared_ptr<OffloadStore> place =
        main.offload() ? main.offload()->options().store : nullptr;
    const std::int64_t written = place ? place->statistics().written_bytes.load() : 0;
    for (std::size_t i = 0; i < main.pieces().size(); ++i)
      collector.put("main", main.pieces()[i], main.read(i));
    optimizer->list_state([&](const ParameterPiece& piece, const std::string& state,
                              at::ScalarType /*dtype*/, const std::function<at::Tensor()>& read) {
      collector.put("listed " + state, piece, read());
    });
    EXPECT_EQ(place ? place->statistics().written_bytes.load() : 0, written)
        << "a checkpoint must not need space in the offload folder";
    optimizer->visit_state([&](const ParameterPiece& piece, const std::string& state,
                               at::Tensor& flat) { collector.put(state, piece, flat); });
  });
  return collector.take();
}

void expect_same(const Outcome& got, const Outcome& expected, const std::string& layout) {
  ASSERT_EQ(got.numbers.size(), expected.numbers.size());
  for (std::size_t i = 0; i < got.numbers.size(); ++i) {
    if (std::isnan(expected.numbers[i]) && std::isnan(got.numbers[i])) continue;
    EXPECT_EQ(got.numbers[i], expected.numbers[i]) << layout << ": number " << i;
  }
  ASSERT_EQ(got.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors)
    EXPECT_TRUE(at::equal(got.tensors.at(name), tensor)) << layout << ": " << name;
}

class DistributedOptimizer : public testing::TestWithParam<Precision> {};

TEST_P(DistributedOptimizer, StepsHaveTheBitsOfOneRank) {
  const Outcome expected = run({}, GetParam());
  EXPECT_EQ(expected.numbers[4 * kBadStep], 0) << "the step with an infinite gradient is left out";
  EXPECT_EQ(expected.numbers[4 * (kSteps - 1)], 1);
  const DataLayout layouts[] = {
      {.dp = 2},
      {.dp = 3, .overlap = true, .bucket_elements = 20'000},
      {.dp = 2, .distributed_optimizer = true, .overlap = true, .bucket_elements = 20'000},
      {.dp = 3, .distributed_optimizer = true},
      {.dp = 4, .distributed_optimizer = true, .overlap = true, .bucket_elements = 100'000},
      {.dp = 4,
       .distributed_optimizer = true,
       .overlap = true,
       .instances = 2,
       .bucket_elements = 30'000},
      {.dp = 2, .distributed_optimizer = true, .instances = 2},
      {.dp = 3, .distributed_optimizer = true, .overlap = true, .whole_parameters = true},
      {.dp = 4,
       .distributed_optimizer = true,
       .instances = 2,
       .bucket_elements = 100'000,
       .whole_parameters = true},
  };
  for (const DataLayout& layout : layouts)
    expect_same(run(layout, GetParam()), expected, layout.name());
}

TEST_P(DistributedOptimizer, OffloadKeepsTheBits) {
  const Outcome expected = run({}, GetParam());
  expect_same(run({}, GetParam(), 1), expected, "all offloaded");
  expect_same(run({}, GetParam(), 0.7), expected, "a part offloaded");
  expect_same(
      run({.dp = 3, .distributed_optimizer = true, .bucket_elements = 30'000}, GetParam(), 0.5),
      expected, "half of each rank's slices offloaded");
}

std::string precision_name(const testing::TestParamInfo<Precision>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Precisions, DistributedOptimizer, testing::ValuesIn(kPrecisions),
                         precision_name);

}  // namespace
}  // namespace megatron
