// The ATen kernels for devices without their own, run on the CPU: an id outside the whole table
// gives NaN, because the host does not read the ids of a GPU.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "megatron/ops/cross_entropy.h"
#include "megatron/ops/embedding.h"

namespace megatron {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

/// The linker drops a library's object, with the operators it registers, unless something in it is
/// used.
[[maybe_unused]] const volatile auto kEmbedding = &embedding;
[[maybe_unused]] const volatile auto kCrossEntropy = &cross_entropy_statistics;

template <class Signature>
c10::TypedOperatorHandle<Signature> operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// A device that no kernel is registered for.
const c10::DispatchKeySet kOtherDevice{c10::DispatchKey::PrivateUse1};

/// A table of five rows on two ranks with three rows each; the last row is padding.
constexpr std::int64_t kNumRows = 5, kRowsPerRank = 3;

/// Returns the sum over both ranks of the rows for `ids`. Row i holds 10 + i.
at::Tensor looked_up(const at::Tensor& ids, const OptionalTensor& position_ids = {}) {
  static const auto op =
      operator_of<at::Tensor(const OptionalTensor&, const OptionalTensor&, std::int64_t,
                             std::int64_t, const OptionalTensor&, const OptionalTensor&,
                             std::int64_t, std::int64_t, c10::ScalarType)>("megatron::embedding");
  at::Tensor sum = at::zeros({ids.numel(), 2});
  for (const std::int64_t first : {std::int64_t{0}, kRowsPerRank}) {
    const at::Tensor table =
        (at::arange(kRowsPerRank) + first + 10).to(at::kFloat).unsqueeze(1).expand({-1, 2});
    const OptionalTensor positions =
        position_ids ? OptionalTensor(at::zeros({4, 2})) : std::nullopt;
    sum += op.redispatch(kOtherDevice, table, ids, first, kNumRows, positions, position_ids, 0, 4,
                         at::kFloat);
  }
  return sum;
}

TEST(EmbeddingByAten, RanksSumToTheRowsOfTheTable) {
  const at::Tensor rows = looked_up(at::tensor({0, 2, 3, 4}, at::kLong));
  EXPECT_TRUE(at::equal(rows.select(1, 1), at::tensor({10., 12., 13., 14.}, at::kFloat)));
}

TEST(EmbeddingByAten, IdsOutsideTheTableAreNaN) {
  for (const int id : {-1, 5, 6, 1000}) {
    const at::Tensor rows = looked_up(at::tensor({1, id}, at::kLong));
    EXPECT_EQ(rows[0][0].item<float>(), 11) << id;
    EXPECT_TRUE(rows[1].isnan().all().item<bool>()) << id;
  }
}

TEST(EmbeddingByAten, PositionsOutsideTheTableAreNaN) {
  const at::Tensor ids = at::tensor({1, 2, 3}, at::kLong);
  const at::Tensor rows = looked_up(ids, at::tensor({3, 4, -1}, at::kLong));
  EXPECT_EQ(rows[0][0].item<float>(), 11);
  EXPECT_TRUE(rows.narrow(0, 1, 2).isnan().all().item<bool>());
}

TEST(CrossEntropyByAten, LabelsOutsideTheVocabularyGiveNaN) {
  static const auto op =
      operator_of<void(const OptionalTensor&, const OptionalTensor&, std::int64_t, std::int64_t,
                       const at::Tensor&, const at::Tensor&)>("megatron::cross_entropy_statistics");
  const at::Tensor labels = at::tensor({0, 4, -1, 5}, at::kLong);
  for (const std::int64_t first : {std::int64_t{0}, kRowsPerRank}) {
    const at::Tensor logits = at::ones({4, std::min(kRowsPerRank, kNumRows - first)});
    const at::Tensor lse = at::empty({4}), label_logit = at::empty({4});
    op.redispatch(kOtherDevice, logits, labels, first, kNumRows, lse, label_logit);
    EXPECT_EQ(label_logit[0].item<float>(), first == 0 ? 1 : 0);
    EXPECT_EQ(label_logit[1].item<float>(), first == 0 ? 0 : 1);
    EXPECT_TRUE(label_logit.narrow(0, 2, 2).isnan().all().item<bool>());
  }
}

}  // namespace
}  // namespace megatron
