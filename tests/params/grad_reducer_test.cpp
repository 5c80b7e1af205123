// Buckets and the reduction of their gradients over data-parallel ranks: order, time of start,
// dtype and compression.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/bucket_layout.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using Sizes = std::vector<std::int64_t>;

struct ThreeParameters : BareModule {
  Parameter& first = add("first", normal_spec({300}, {.precise = true}));
  Parameter& tied = add("tied", normal_spec({40, 30}));
  Parameter& last = add("last", normal_spec({10}));
};

std::vector<std::string> names(const BucketLayout& layout) {
  std::vector<std::string> result;
  for (const Parameter* parameter : layout.parameters) result.push_back(parameter->name());
  return result;
}

/// Returns the layouts of parameters that are all reduced as `options` say.
std::vector<BucketLayout> layouts_of(const std::vector<Parameter*>& declared,
                                     const DataParallelOptions& options,
                                     bool separates_precise = false) {
  return bucket_layouts(declared, [&](const Parameter& parameter) {
    return BucketKind{.is_precise = separates_precise && parameter.spec().tags.precise,
                      .data_parallel = &options};
  });
}

TEST(BucketLayout, FollowsBackwardAndClosesWhenFull) {
  ThreeParameters model;
  const std::vector<Parameter*> declared{&model.first, &model.tied, &model.last};
  const auto one = layouts_of(declared, {});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_THAT(names(one[0]), ElementsAre("last", "tied", "first"));
  EXPECT_THAT(one[0].offsets, ElementsAre(0, 256, 256 + 1280));
  EXPECT_EQ(one[0].size, 256 + 1280 + 512);
  DataParallelOptions options;
  options.all.size = 3;
  options.bucket_elements = 300;
  const auto closed = layouts_of(declared, options);
  ASSERT_EQ(closed.size(), 2u);
  EXPECT_THAT(names(closed[0]), ElementsAre("last", "tied"));
  EXPECT_EQ(closed[0].size, 2 * 3 * 256);  // equal slices of whole blocks
  options.pads_for_bus_bandwidth = true;
  EXPECT_EQ(layouts_of(declared, options)[0].size, 3 * 65536);
  options.num_buckets = 1;
  EXPECT_EQ(layouts_of(declared, options).size(), 1u);
  const auto precise = layouts_of(declared, {}, true);
  ASSERT_EQ(precise.size(), 2u);
  EXPECT_THAT(names(precise[0]), ElementsAre("last", "tied"));
  EXPECT_TRUE(precise[1].is_precise);
}

/// A group of two ranks that only records what was started.
class RecordingComm final : public Comm {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return 2; }
  const std::string& name() const override { return name_; }
  const std::vector<std::int64_t>& ranks() const override { return ranks_; }
  std::vector<std::int64_t> started = {};

 protected:
  struct Done : Work {
    void wait() override {}
  };
  PendingWork start(CommCall call) override {
    started.push_back(call.in.numel());
    return std::make_unique<Done>();
  }
  void run(CommCall call) override { start(std::move(call)); }

 private:
  std::string name_ = "dp-cp";
  std::vector<std::int64_t> ranks_{0, 1};
};

TEST(GradReducer, StartsABucketWhenItsLastContributionOfTheLastMicrobatchIsThere) {
  ThreeParameters model;
  const auto comm = std::make_shared<RecordingComm>();
  DataParallelOptions options;
  options.all = options.replica = {.name = "dp-cp", .rank = 0, .size = 2, .comm = comm};
  options.bucket_elements = 1;
  options.overlaps_grad_reduce = true;
  ParamStore store(declared_parameters(model), {.data_parallel = options});
  const auto contribute = [](Parameter& parameter) {
    parameter.contribute(at::ones(parameter.local_shape()));
  };
  for (int step = 0; step < 2; ++step) {
    comm->started.clear();
    store.zero_gradients(/*num_microbatches=*/2);
    for (const bool is_last : {false, step > 0}) {
      contribute(model.tied);
      contribute(model.last);
      EXPECT_EQ(comm->started, (is_last ? Sizes{512} : Sizes{}))
          << "the tied weight waits for its second use";
      contribute(model.tied);
      EXPECT_EQ(comm->started, (is_last ? Sizes{512, 1536} : Sizes{}));
      contribute(model.first);
      EXPECT_EQ(comm->started, (is_last ? Sizes{512, 1536, 512} : Sizes{}));
    }
    store.finalize_gradients();
    EXPECT_THAT(comm->started, ElementsAre(512, 1536, 512));
    EXPECT_EQ(model.tied.grad()[0][0].item<double>(), 4);
  }
  store.zero_gradients(1);
  contribute(model.last);
  EXPECT_THROW(contribute(model.last), InternalError) << "its sum is under way";
}

/// Returns the values of `parameter` on every rank after `steps` steps, where the gradient on rank
/// r is gradient(r) and `use` is called after each step.
void reduce(const DataLayout& layout, const std::function<void(DataParallelOptions&)>& change,
            at::ScalarType type, int steps, Shape shape,
            const std::function<at::Tensor(std::int64_t)>& gradient,
            const std::function<void(const Rank&, const at::Tensor&, int)>& use) {
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    BareModule model;
    Parameter& parameter = model.add("w", normal_spec(shape));
    model.add("bias", normal_spec({7}));
    DataParallelOptions options = data_parallel_of(layout, rank, communicators);
    change(options);
    ParamStore store(declared_parameters(model), {.grad_dtype = type, .data_parallel = options});
    for (int step = 0; step < steps; ++step) {
      store.zero_gradients();
      parameter.contribute(gradient(rank.dp.rank).to(type));
      store.finalize_gradients();
      store.gather_gradients();
      store.commit_gradients();
      use(rank, parameter.grad().to(at::kDouble), step);
    }
  });
}

TEST(GradReducer, SumsOrAveragesEveryWay) {
  for (const bool distributed : {false, true}) {
    for (const std::int64_t instances : {1, 2}) {
      for (const bool averages : {false, true}) {
        if (instances > 1 && !distributed) continue;
        const DataLayout layout{
            .dp = 4, .distributed_optimizer = distributed, .instances = instances};
        const auto gradient = [](std::int64_t rank) {
          return at::arange(600, at::kFloat) + static_cast<double>(rank);
        };
        reduce(
            layout, [&](DataParallelOptions& options) { options.averages = averages; }, at::kFloat,
            1, {600}, gradient,
            [&](const Rank&, const at::Tensor& grad, int) {
              const at::Tensor sum = at::arange(600, at::kDouble) * 4 + 6;
              EXPECT_TRUE(at::equal(grad, averages ? sum / 4 : sum)) << layout.name();
            });
      }
    }
  }
}

TEST(GradReducer, Adds16BitGradientsInFloat32) {
  // bfloat16 has eight bits: 256 + 1 would stay 256 if a partial sum were rounded.
  reduce(
      {.dp = 3, .distributed_optimizer = true},
      [](DataParallelOptions& options) { options.accumulates_in_fp32 = true; }, at::kBFloat16, 1,
      {600}, [](std::int64_t rank) { return at::full({600}, rank == 0 ? 256.0 : 1.0); },
      [](const Rank&, const at::Tensor& grad, int) {
        EXPECT_TRUE(at::equal(grad, at::full({600}, 258.0, at::kDouble)));
      });
}

TEST(GradCompression, Bf16SendsRoundedNumbers) {
  for (const bool distributed : {false, true}) {
    const auto gradient = [](std::int64_t rank) {
      return at::full({600}, 1 + 0x1p-12 * static_cast<double>(rank));
    };
    reduce(
        {.dp = 2, .distributed_optimizer = distributed},
        [](DataParallelOptions& options) { options.compression = "bf16"; }, at::kFloat, 1, {600},
        gradient,
        [](const Rank&, const at::Tensor& grad, int) {
          EXPECT_TRUE(at::equal(grad, at::full({600}, 2.0, at::kDouble)));
        });
  }
}

at::Tensor irregular(std::int64_t rows, std::int64_t columns, double step) {
  return at::sin(at::arange(rows * columns, at::kDouble) * step + 0.3).view({rows, columns});
}

/// A sum of rank two lies in the span of two columns after one step of the power iteration.
TEST(GradCompression, LowRankKeepsMatricesOfLowRank) {
  const at::Tensor left = irregular(48, 2, 1.3), right = irregular(2, 64, 0.7);
  const auto gradient = [&](std::int64_t rank) {
    return left.mm(right) * static_cast<double>(rank + 1);
  };
  const auto change = [](DataParallelOptions& options) {
    options.compression = "low-rank";
    options.compression_rank = 2;
  };
  reduce({.dp = 3}, change, at::kFloat, 3, {48, 64}, gradient,
         [&](const Rank&, const at::Tensor& grad, int) {
           EXPECT_LT(((grad - left.mm(right) * 6).norm() / grad.norm()).item<double>(), 1e-5);
         });
}

/// A step may be computed again (reruns): what it leaves out counts once, when the step is used.
TEST(GradCompression, LowRankOfTheSameGradientsIsTheSameUntilTheyAreUsed) {
  const auto gradient = [](std::int64_t rank, int step) {
    return irregular(48, 64, 0.37 + 0.11 * static_cast<double>(rank) + 0.05 * step).to(at::kFloat);
  };
  on_data_ranks({.dp = 2}, [&](const Rank& rank, Communicators& communicators) {
    DataParallelOptions options = data_parallel_of({.dp = 2}, rank, communicators);
    options.compression = "low-rank";
    options.compression_rank = 4;
    BareModule once_model, again_model;
    Parameter &once = once_model.add("w", normal_spec({48, 64})),
              &again = again_model.add("w", normal_spec({48, 64}));
    ParamStore once_store(declared_parameters(once_model), {.data_parallel = options}),
        again_store(declared_parameters(again_model), {.data_parallel = options});
    const auto reduce_step = [&](ParamStore& store, Parameter& parameter, int step) {
      store.zero_gradients();
      parameter.contribute(gradient(rank.dp.rank, step));
      store.finalize_gradients();
      return parameter.grad().clone();
    };
    for (int step = 0; step < 3; ++step) {
      const at::Tensor expected = reduce_step(once_store, once, step);
      once_store.commit_gradients();
      for (int attempt = 0; attempt < 3; ++attempt)
        EXPECT_TRUE(at::equal(reduce_step(again_store, again, step), expected))
            << "step " << step << ", attempt " << attempt;
      again_store.commit_gradients();
    }
  });
}

/// The compression error of a step is added later: over many steps the error of the sums stays
/// bounded.
TEST(GradCompression, LowRankRemembersItsError) {
  const auto gradient = [](std::int64_t rank) {
    const at::Tensor index = at::arange(48 * 64, at::kDouble) + 11.0 * static_cast<double>(rank);
    return at::sin(index * index * 0.37).view({48, 64});
  };
  const at::Tensor sum = gradient(0) + gradient(1);
  const auto change = [](DataParallelOptions& options) {
    options.compression = "low-rank";
    options.compression_rank = 4;
  };
  at::Tensor total = at::zeros({48, 64}, at::kDouble), first;
  std::vector<at::Tensor> of_ranks(2);
  constexpr int kSteps = 60;
  reduce({.dp = 2}, change, at::kFloat, kSteps, {48, 64}, gradient,
         [&](const Rank& rank, const at::Tensor& grad, int step) {
           of_ranks[static_cast<std::size_t>(rank.index)] = grad.clone();
           if (rank.index != 0) return;
           if (step == 0) first = grad.clone();
           total += grad;
         });
  EXPECT_TRUE(at::equal(of_ranks[0], of_ranks[1]));
  const double lacking_once = ((first - sum).norm() / sum.norm()).item<double>();
  const double lacking_in_all = ((total / kSteps - sum).norm() / sum.norm()).item<double>();
  EXPECT_GT(lacking_once, 0.1) << "the matrix has more than four directions";
  EXPECT_LT(lacking_in_all, lacking_once / 4);
}

}  // namespace
}  // namespace megatron
