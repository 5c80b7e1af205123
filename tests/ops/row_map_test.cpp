// Rows on their way to experts and back: the order of copies and the order of sums.
#include "megatron/ops/row_map.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gradient_check.h"

namespace megatron {
namespace {

using testing::ElementsAre;

at::Tensor ints(const std::vector<int>& numbers, at::IntArrayRef shape) {
  return at::tensor(numbers, at::TensorOptions().dtype(at::kInt)).view(shape);
}

std::vector<int> values(const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(at::kInt).contiguous();
  return {numbers.const_data_ptr<int>(), numbers.const_data_ptr<int>() + numbers.numel()};
}

// 7 copies of 5 sources for 3 slots; with at least 3 rows each, two slots are filled up.
TEST(RowMap, OfTheMetaDeviceIsEven) {
  const SlotMap map = even_map(5, 7, 3, /*least=*/0, at::kMeta);
  EXPECT_THAT(map.counts, ElementsAre(2, 2, 3));
  EXPECT_EQ(map.map.num_rows(), 7);
  EXPECT_EQ(map.map.num_sources(), 5);
  const SlotMap padded = even_map(5, 7, 3, /*least=*/3, at::kMeta);
  EXPECT_THAT(padded.counts, ElementsAre(3, 3, 3));
  EXPECT_EQ(padded.map.num_rows(), 9);
  EXPECT_EQ(gather_rows(at::empty({5, 4}, at::kMeta), padded.map).sizes(), at::IntArrayRef({9, 4}));
}

TEST(RowMap, CopiesAreSortedBySlotAndThenBySource) {
  const SlotMap sorted = sort_by_slot(ints({2, 0, 1, 2, -1, 0}, {3, 2}), halving_codes(4));
  EXPECT_THAT(sorted.counts, ElementsAre(2, 1, 2, 0));
  EXPECT_THAT(values(sorted.map.source), ElementsAre(0, 2, 1, 0, 1));
  EXPECT_THAT(values(sorted.map.choice), ElementsAre(1, 5, 2, 0, 3));
  EXPECT_THAT(values(sorted.map.offsets), ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(values(sorted.map.summands), ElementsAre(3, 0, 2, 4, 1));
}

TEST(RowMap, ASlotIsFilledUpWithRowsOfZeros) {
  const SlotMap sorted = sort_by_slot(ints({1, -1}, {2, 1}), halving_codes(2), /*least=*/2);
  EXPECT_THAT(sorted.counts, ElementsAre(2, 2));
  EXPECT_THAT(values(sorted.map.source), ElementsAre(-1, -1, 0, -1));
  const at::Tensor x = random_input({2, 3}).detach(), rows = gather_rows(x, sorted.map);
  EXPECT_TRUE(rows[2].equal(x[0]));
  EXPECT_EQ(rows.index_select(0, at::tensor({0, 1, 3})).abs().max().item<double>(), 0);
  EXPECT_TRUE(sum_rows(rows, sorted.map).equal(at::stack({x[0], at::zeros({3}, at::kDouble)})));
  EXPECT_THAT(values(gather_choices(at::tensor({7., 9.}).view({2, 1}), sorted.map)),
              ElementsAre(0, 0, 7, 0));
}

/// Of no source at all there may still be padding.
TEST(RowMap, PaddingNeedsNoSource) {
  const RowMap map = sort_by_slot(ints({}, {0, 2}), halving_codes(2), /*least=*/3).map;
  EXPECT_EQ(gather_rows(at::ones({0, 4}), map).sizes(), at::IntArrayRef({6, 4}));
  EXPECT_EQ(gather_rows(at::ones({0, 4}), map).abs().max().item<float>(), 0);
  EXPECT_EQ(sum_rows(at::ones({6, 4}), map).sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(gather_choices(at::ones({0, 2}), map).abs().max().item<float>(), 0);
  EXPECT_EQ(sum_choices(at::ones({6}), map, 2).sizes(), at::IntArrayRef({0, 2}));
}

/// Returns choices of `each` of `slots` for each source, ascending.
at::Tensor some_choices(std::int64_t sources, std::int64_t each, std::int64_t slots) {
  return std::get<0>(std::get<1>(random_input({sources, slots}).detach().sort(-1))
                         .narrow(1, 0, each)
                         .to(at::kInt)
                         .sort(-1))
      .contiguous();
}

TEST(RowMap, SumsAndCopiesAreTransposed) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const SlotMap sorted = sort_by_slot(some_choices(50, 5, 12), halving_codes(12));
    const at::Tensor x = random_input({50, 70}).detach().to(type),
                     y = random_input({250, 70}, 1, 2).detach().to(type);
    const at::Tensor source = sorted.map.source.to(at::kLong);
    EXPECT_TRUE(gather_rows(x, sorted.map).equal(x.index_select(0, source)));
    const at::Tensor expected =
        at::zeros({50, 70}, at::kDouble).index_add_(0, source, y.to(at::kDouble));
    const double rounding = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 4e-3;
    EXPECT_LE(difference(sum_rows(y, sorted.map).to(at::kDouble), expected), rounding) << type;
  }
}

/// The sum over all experts has the bits of: sum on each of `ranks` ranks, then over the ranks.
TEST(RowMap, SumsOfRanksAreSubtrees) {
  constexpr std::int64_t kTokens = 64, kExperts = 24;
  const at::Tensor choices = some_choices(kTokens, 7, kExperts);
  const auto codes = halving_codes(kExperts);
  const SlotMap all = sort_by_slot(choices, codes);
  const at::Tensor y = random_input({kTokens * 7, 33}).detach().to(at::kFloat);
  const at::Tensor whole = sum_rows(y, all.map);
  for (const std::int64_t ranks : {2, 4, 8}) {
    const std::int64_t local = kExperts / ranks;
    std::vector<std::uint64_t> rank_codes;
    at::Tensor partial = at::zeros({kTokens, ranks, 33}), members = at::empty({kTokens, ranks});
    std::int64_t first = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      rank_codes.push_back(codes[static_cast<std::size_t>(rank * local)]);
      const at::Tensor index = choices - rank * local,
                       mine = at::where((index >= 0).logical_and(index < local), index, -1)
                                  .to(at::kInt);
      const SlotMap part = sort_by_slot(mine, std::span(codes).subspan(rank * local, local));
      partial.select(1, rank).copy_(sum_rows(y.narrow(0, first, part.map.num_rows()), part.map));
      members.select(1, rank).copy_((mine >= 0).any(1));
      first += part.map.num_rows();
    }
    const at::Tensor slots =
        at::where(members > 0, at::arange(ranks).expand({kTokens, ranks}), -1).to(at::kInt);
    const SlotMap home = sort_by_slot(slots, rank_codes);
    at::Tensor rows = at::empty({home.map.num_rows(), 33});
    const std::vector<int> source = values(home.map.source), choice = values(home.map.choice);
    for (std::int64_t row = 0; row < home.map.num_rows(); ++row) {
      const auto i = static_cast<std::size_t>(row);
      rows[row].copy_(partial[source[i]][choice[i] % ranks]);
    }
    EXPECT_TRUE(sum_rows(rows, home.map).equal(whole)) << ranks << " ranks";
  }
  const at::Tensor ascending =
      at::zeros({kTokens, 33}).index_add_(0, all.map.source.to(at::kLong), y);
  EXPECT_FALSE(whole.equal(ascending)) << "the sums above have no rounding to compare";
}

TEST(RowMap, ChoicesTakeTheirValuesThereAndBack) {
  const SlotMap sorted = sort_by_slot(ints({1, 0, 0, -1}, {2, 2}), halving_codes(2));
  const at::Tensor values_of = at::tensor({0.1, 0.2, 0.3, 0.4}).view({2, 2});
  EXPECT_TRUE(gather_choices(values_of, sorted.map).equal(at::tensor({0.2, 0.3, 0.1})));
  EXPECT_TRUE(sum_choices(at::tensor({5., 6., 7.}), sorted.map, 2)
                  .equal(at::tensor({7., 5., 6., 0.}).view({2, 2})));
}

}  // namespace
}  // namespace megatron
