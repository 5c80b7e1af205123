// Operators whose kernels take and return structs.
#include "megatron/ops/operator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace megatron {
namespace {

enum class Shade : std::uint8_t { light, dark };

struct Site {
  at::Tensor ordinals = {};
  std::uint64_t key = 0;
  static auto members(auto& s) { return std::tie(s.ordinals, s.key); }
};

struct Options {
  at::Tensor bias = {};
  Shade shade = Shade::light;
  std::optional<double> clamp = {};
  std::array<std::int64_t, 2> window{-1, -1};
  Site site = {};
  bool is_last = false;
  static auto members(auto& o) {
    return std::tie(o.bias, o.shade, o.clamp, o.window[0], o.window[1], o.site, o.is_last);
  }
};

struct Result {
  at::Tensor sum, none;
  static auto members(auto& r) { return std::tie(r.sum, r.none); }
};

Options seen;

Result kernel(const at::Tensor& x, const Options& options, c10::ScalarType type) {
  seen = options;
  return {(options.bias.defined() ? x + options.bias : x).to(type), {}};
}

void fill(const at::Tensor& x, const Options& options) { at::Tensor(x).fill_(options.bias); }

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<kernel>(library, "test_structs");
  define_operator<fill>(library,
                        "test_fill_(Tensor(a!) x, Tensor? bias, int shade, float? clamp, int left, "
                        "int right, Tensor? ordinals, int key, bool is_last) -> ()");
}

TEST(Operator, StructsPassTheDispatcher) {
  static const Operator<kernel> op("megatron::test_structs");
  const at::Tensor x = at::full({3}, 1.5, at::kDouble), ordinals = at::full({2}, 7, at::kLong);
  const Result result = op(x,
                           {.bias = x * 2,
                            .shade = Shade::dark,
                            .clamp = 0.25,
                            .window = {3, 4},
                            .site = {ordinals, std::numeric_limits<std::uint64_t>::max()},
                            .is_last = true},
                           at::kFloat);
  EXPECT_EQ(result.sum.scalar_type(), at::kFloat);
  EXPECT_TRUE((result.sum == 4.5).all().item<bool>());
  EXPECT_FALSE(result.none.defined());
  EXPECT_EQ(seen.shade, Shade::dark);
  EXPECT_EQ(seen.clamp, 0.25);
  EXPECT_EQ(seen.window, (std::array<std::int64_t, 2>{3, 4}));
  EXPECT_TRUE(seen.site.ordinals.is_same(ordinals));
  EXPECT_EQ(seen.site.key, std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(seen.is_last);
}

TEST(Operator, MembersMayBeAbsent) {
  static const Operator<kernel> op("megatron::test_structs");
  const Result result = op(at::full({3}, 1.5), {}, at::kFloat);
  EXPECT_TRUE((result.sum == 1.5).all().item<bool>());
  EXPECT_FALSE(seen.bias.defined());
  EXPECT_FALSE(seen.site.ordinals.defined());
  EXPECT_EQ(seen.clamp, std::nullopt);
}

TEST(Operator, ArgumentsMayBeWritten) {
  static const Operator<fill> op("megatron::test_fill_");
  const at::Tensor x = at::full({3}, 1.5);
  op(x, {.bias = at::full({}, 2.5)});
  EXPECT_TRUE((x == 2.5).all().item<bool>());
}

}  // namespace
}  // namespace megatron
