// Checks the memory of data-parallel ranks against the formula, and the comparison of replicas.
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/optimizer/replica_check.h"
#include "megatron/parallel/rank.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"

namespace megatron {
namespace {

/// Embeddings and norms hold 2 % of the weights, as in a model with 7 billion weights.
struct UsualModel : BareModule {
  UsualModel() {
    add("embedding", normal_spec({1000, 20}, {.embedding = true, .precise = true}));
    for (int layer = 0; layer < 10; ++layer) {
      add("norm" + std::to_string(layer), normal_spec({200}, {.no_decay = true, .precise = true}));
      add("matrix" + std::to_string(layer), normal_spec({307, 331}));
    }
  }
};

double bytes_of(const at::Tensor& tensor) { return static_cast<double>(tensor.storage().nbytes()); }

/// Megatron's 6 + 12/d bytes per weight in bfloat16 with float32 gradients. Precise parameters keep
/// float32 weights on every rank.
TEST(DistributedOptimizerMemory, IsMegatronsFormula) {
  for (const std::int64_t d : {1, 2, 4}) {
    on_data_ranks({.dp = d, .distributed_optimizer = true}, [&](const Rank& rank,
                                                                Communicators& communicators) {
      UsualModel model;
      ParamStore store(declared_parameters(model),
                       {.dtype = at::kBFloat16,
                        .grad_dtype = at::kFloat,
                        .data_parallel = data_parallel_of({.dp = d, .distributed_optimizer = true},
                                                          rank, communicators)});
      const auto optimizer = make_optimizer(OptimizerConfig{}, store);
      double bytes = static_cast<double>(optimizer->main_parameters().num_bytes()), elements = 0,
             precise = 0, states = 0;
      for (const ParamBucket& bucket : store.buckets()) {
        bytes += bytes_of(bucket.value) + bytes_of(bucket.grad);
        elements += static_cast<double>(bucket.value.numel());
        if (bucket.is_precise) precise += static_cast<double>(bucket.value.numel());
      }
      // States have whole blocks of 256 elements, without the padding of buckets.
      for (const ParameterPiece& piece : store.pieces()) {
        const std::int64_t blocks = (piece.count + 255) / 256;
        states += 256 * static_cast<double>(blocks);
      }
      const double ranks = static_cast<double>(d), formula = 6 + 12 / ranks;
      EXPECT_EQ(bytes, elements * (6 + 4 / ranks) + precise * (4 - 4 / ranks));
      EXPECT_EQ(static_cast<double>(optimizer->num_state_bytes()), 8 * states);
      bytes += static_cast<double>(optimizer->num_state_bytes());
      EXPECT_NEAR(bytes / static_cast<double>(store.num_parameters()) / formula, 1, 0.03) << d;
    });
  }
}

TEST(ReplicaCheck, NamesParametersAndRanks) {
  on_data_ranks({.dp = 3}, [&](const Rank& rank, Communicators& communicators) {
    UsualModel model;
    ParamStore store(declared_parameters(model),
                     {.data_parallel = data_parallel_of({.dp = 3}, rank, communicators)});
    store.initialize(1);
    check_replicas(store);
    if (rank.index == 2) store.find("matrix3")->value()[5][7].mul_(1 + 0x1p-20);
    try {
      check_replicas(store);
      ADD_FAILURE() << "a difference was not found";
    } catch (const HardwareError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("matrix3: ranks 2 differ from rank 0"));
      EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("matrix4")));
    }
  });
}

/// Returns what the replicas say after each of `broken` has changed a weight in its own way.
std::string difference_of(std::int64_t replicas, const std::vector<std::int64_t>& broken) {
  std::string text;
  on_data_ranks({.dp = replicas}, [&](const Rank& rank, Communicators& communicators) {
    UsualModel model;
    ParamStore store(declared_parameters(model),
                     {.data_parallel = data_parallel_of({.dp = replicas}, rank, communicators)});
    store.initialize(1);
    if (std::ranges::count(broken, rank.index) > 0)
      store.find("norm2")->value()[7].mul_(static_cast<double>(2 + rank.index));
    try {
      check_replicas(store);
      ADD_FAILURE() << "a difference was not found";
    } catch (const HardwareError& error) {
      if (rank.index == 0) text = error.what();
    }
  });
  return text;
}

TEST(ReplicaCheck, BlamesNobodyWithoutAMajority) {
  const std::string unknown =
      " differ, and which of them is right is unknown: suspect the hosts of all";
  for (const std::int64_t broken : {0, 1}) {
    const std::string text = difference_of(2, {broken});
    EXPECT_THAT(text, testing::HasSubstr("norm2: ranks 0 and 1" + unknown));
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("differ from")));
  }
  EXPECT_THAT(difference_of(4, {1, 2}),
              testing::HasSubstr("norm2: ranks (0, 3) and 1 and 2" + unknown));
}

TEST(ReplicaCheck, AMajorityIsMoreThanHalf) {
  EXPECT_THAT(difference_of(3, {1}), testing::HasSubstr("norm2: ranks 1 differ from rank 0\n"));
  EXPECT_THAT(difference_of(5, {0, 4}),
              testing::HasSubstr("norm2: ranks 0, 4 differ from rank 1\n"));
}

TEST(ReplicaCheck, BlamesTheMinority) {
  on_data_ranks({.dp = 3}, [&](const Rank& rank, Communicators& communicators) {
    UsualModel model;
    ParamStore store(declared_parameters(model),
                     {.data_parallel = data_parallel_of({.dp = 3}, rank, communicators)});
    store.initialize(1);
    if (rank.index == 0) store.find("norm2")->value()[7].mul_(2);
    try {
      check_replicas(store);
      ADD_FAILURE() << "a difference was not found";
    } catch (const HardwareError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("norm2: ranks 0 differ from rank 1"));
    }
  });
}

}  // namespace
}  // namespace megatron
