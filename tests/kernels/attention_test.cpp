// Compares the attention kernels with the formulas in float64, over ragged sizes and every option
// of a score. Workspaces are filled with NaN, and work is shared in several ways, which must give
// the same bits.
#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "emulated_tiles.h"
#include "kernels/cpu/conversions.h"
#include "megatron/base/philox.h"
#include "storage.h"

namespace megatron::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  std::int64_t sq, sk, b, n, g, d, dv;
  std::function<void(AttentionArguments&)> set = [](AttentionArguments&) {};
  /// Positions of three documents of the first sample, and of four of the second. 0: none.
  std::int64_t documents_span = 0;
};

/// Numbers [s, b, heads, channels] inside rows of a wider tensor, as a mixed projection makes them.
struct Heads {
  Heads(Type type, std::int64_t s, std::int64_t b, std::int64_t heads, std::int64_t channels,
        std::uint64_t seed, double scale)
      : values(numbers(type, static_cast<std::size_t>(s * b * (heads * channels + kGap)), seed,
                       scale)),
        b(b),
        heads(heads),
        channels(channels) {}
  static constexpr std::int64_t kGap = 5;
  std::int64_t row() const { return heads * channels + kGap; }
  HeadsView view() const { return {values.data(), b * row(), row(), channels}; }
  std::array<std::int64_t, 3> strides() const { return {b * row(), row(), channels}; }
  std::size_t at(std::int64_t s, std::int64_t sample, std::int64_t head, std::int64_t c) const {
    return static_cast<std::size_t>((s * b + sample) * row() + head * channels + c);
  }
  double operator()(std::int64_t s, std::int64_t sample, std::int64_t head, std::int64_t c) const {
    return values[at(s, sample, head, c)];
  }
  Storage values;
  std::int64_t b, heads, channels;
};

/// The blocks of a KV cache for the keys of a problem, the last one first in memory. They hold NaN
/// at first.
struct CacheBlocks {
  explicit CacheBlocks(const AttentionArguments& a, KvCacheType cache_type = KvCacheType::same)
      : type(cache_type) {
    const std::int64_t count = (a.sk + kAttentionKeys - 1) / kAttentionKeys,
                       bytes = a.b * a.g * packed_block_bytes(*a.micro_kernel, a.d, a.dv, type);
    memory.assign(static_cast<std::size_t>(count * bytes), '\xff');
    for (std::int64_t i = 0; i < count; ++i) {
      addresses.push_back(memory.data() + i * bytes);
      numbers.push_back(static_cast<std::int32_t>(count - 1 - i));
    }
  }
  KvCacheType type;
  std::vector<char> memory;
  std::vector<char*> addresses;
  std::vector<std::int32_t> numbers;
};

/// A problem with the results of the kernels.
struct Problem {
  Problem(const Case& c, Type type, const MicroKernel* micro_kernel)
      : q(type, c.sq, c.b, c.n, c.d, 1, 2),
        k(type, c.sk, c.b, c.g, c.d, 2, 2),
        v(type, c.sk, c.b, c.g, c.dv, 3, 2),
        dout(type, c.sq, c.b, c.n, c.dv, 4, 1),
        dq(type, c.sq, c.b, c.n, c.d, 5, 1),
        dk(type, c.sk, c.b, c.g, c.d, 6, 1),
        dv(type, c.sk, c.b, c.g, c.dv, 7, 1),
        out(type, static_cast<std::size_t>(c.sq * c.b * c.n * c.dv)),
        lse(static_cast<std::size_t>(c.b * c.n * c.sq)),
        top(lse.size()) {
    arguments = {};
    arguments.type = type;
    arguments.micro_kernel = micro_kernel;
    arguments.sq = c.sq, arguments.sk = c.sk, arguments.b = c.b, arguments.n = c.n,
    arguments.g = c.g, arguments.d = c.d, arguments.dv = c.dv;
    arguments.q = q.view(), arguments.k = k.view(), arguments.v = v.view();
    arguments.causal = true;
    arguments.window = {-1, -1};
    arguments.scale = 0.4;
    c.set(arguments);
    // A sequence that continues behind the call, unless a case says otherwise.
    arguments.total_q = arguments.q_start + c.sq + 3;
    arguments.total_k = arguments.k_start + c.sk + 5;
    for (std::int64_t h = 0; h < c.n; ++h)
      slopes.push_back(static_cast<float>(std::exp2(-1.0 - static_cast<double>(h))));
    if (arguments.alibi_slopes != nullptr) arguments.alibi_slopes = slopes.data();
    for (std::int64_t h = 0; h < c.n; ++h) sinks.push_back(1.5f - 1.25f * static_cast<float>(h));
    if (arguments.sinks != nullptr) arguments.sinks = sinks.data();
    if (arguments.distance_bias != nullptr) {
      const std::int64_t columns = arguments.total_q + arguments.total_k - 1;
      arguments.distance_stride = columns + kAttentionKeys;
      for (std::int64_t i = 0; i < c.n * arguments.distance_stride; ++i)
        distances.push_back(i % arguments.distance_stride < columns
                                ? static_cast<float>(std::sin(0.7 * static_cast<double>(i)))
                                : 0.0f);
      ddistances.assign(distances.size(), std::numeric_limits<float>::quiet_NaN());
      arguments.distance_bias = distances.data();
    }
    if (c.documents_span > 0) {
      const std::int64_t positions = std::max(arguments.q_start + c.sq, arguments.k_start + c.sk);
      for (std::int64_t i = 0; i < c.b * positions; ++i)
        documents.push_back(
            static_cast<std::int32_t>(i % positions * (3 + i / positions) / c.documents_span));
      arguments.document_ids = documents.data();
      arguments.document_stride = positions;
      if (arguments.key_document_ids != nullptr) {
        for (std::int64_t i = 0; i < c.b * positions; ++i)
          key_documents.push_back(static_cast<std::int32_t>(i * 5 / c.documents_span % 3));
        arguments.key_document_ids = key_documents.data();
        arguments.key_document_stride = positions;
      }
    }
    arguments.ordinals = ordinals.data();
  }

  /// Runs both stages of a pass in ranges of `step` parts, the last range first. Each range has its
  /// own workspace.
  template <class Plan, class Run, class Arguments>
  static void run_pass(const Plan& plan_of, const Run& pass, const Arguments& a,
                       std::int64_t step) {
    const AttentionPlan plan = plan_of(a);
    std::vector<char> shared(static_cast<std::size_t>(plan.shared_bytes + 64), '\xff');
    for (int stage = 0; stage < 2; ++stage) {
      const std::int64_t parts = plan.parts[static_cast<std::size_t>(stage)];
      for (std::int64_t end = parts; end > 0; end -= std::min(step, end)) {
        std::vector<char> scratch(static_cast<std::size_t>(plan.workspace_bytes + 64), '\xff');
        pass(a, stage, std::max<std::int64_t>(0, end - step), end, shared.data(), scratch.data());
      }
    }
  }

  void forward(std::int64_t step = 1 << 20) {
    AttentionForwardArguments a{arguments, out.data(), lse.data(), top.data()};
    run_pass(attention_kernels().forward_plan, attention_kernels().forward, a, step);
  }

  /// Appends keys and values [begin, end) to a cache. Computes all queries if `attends`.
  void forward_cached(const CacheBlocks& cache, std::int64_t begin, std::int64_t end, bool attends,
                      std::int64_t step = 1 << 20) {
    AttentionForwardArguments a{arguments, out.data(), lse.data(), top.data()};
    a.packed = {cache.addresses.data(), cache.numbers.data(), end - begin, cache.type};
    a.sq = attends ? a.sq : 0;
    a.sk = end;
    for (HeadsView* x : {&a.k, &a.v})
      x->data = element_at(x->data, a.type, begin * x->position_stride);
    run_pass(attention_kernels().forward_plan, attention_kernels().forward, a, step);
  }

  void backward(std::int64_t step = 1 << 20) {
    AttentionBackwardArguments a{arguments,        out.data(),       lse.data(),       dout.view(),
                                 dq.values.data(), dk.values.data(), dv.values.data(), dq.strides(),
                                 dk.strides(),     dv.strides(),     ddistances.data()};
    run_pass(attention_kernels().backward_plan, attention_kernels().backward, a, step);
  }

  Heads q, k, v, dout, dq, dk, dv;
  Storage out;
  std::vector<float> lse, top, slopes, sinks, distances, ddistances;
  std::vector<std::int32_t> documents, key_documents;
  std::vector<std::int64_t> ordinals{3, (std::int64_t{1} << 40) + 5, 0};
  AttentionArguments arguments;
};

/// Sums, and beside each sum the sum of the magnitudes of what is rounded to 16 bits.
struct Sum {
  double value = 0, spread = 0;
  void add(double x, double rounded) { value += x, spread += std::abs(rounded); }
};

struct Textbook {
  std::vector<Sum> out, dq, dk, dv, ddistances;
  std::vector<double> lse, top;
};

bool sees(const Problem& p, std::int64_t sample, std::int64_t i, std::int64_t j) {
  const AttentionArguments& a = p.arguments;
  const std::int64_t query = a.q_start + i, key = a.k_start + j;
  if (a.causal && key > query) return false;
  if (a.window[0] >= 0 && key < query - a.window[0]) return false;
  if (a.window[1] >= 0 && key > query + a.window[1]) return false;
  if (a.chunk > 0 && key / a.chunk != query / a.chunk) return false;
  const std::int32_t* ids =
      a.document_ids == nullptr ? nullptr : a.document_ids + sample * a.document_stride;
  const std::int32_t* of_keys =
      a.key_document_ids == nullptr ? ids : a.key_document_ids + sample * a.key_document_stride;
  return ids == nullptr || ids[query] == of_keys[key];
}

double keep_factor(const Problem& p, std::int64_t sample, std::int64_t h, std::int64_t i,
                   std::int64_t j) {
  const AttentionArguments& a = p.arguments;
  if (!a.has_dropout) return 1;
  const auto element = static_cast<std::uint64_t>(
      ((a.first_head + h) * a.total_q + a.q_start + i) * a.total_k + a.k_start + j);
  const auto ordinal = static_cast<std::uint64_t>(p.ordinals[static_cast<std::size_t>(sample)]);
  return philox_block(a.rule.key, element / 4, ordinal)[element % 4] >= a.rule.threshold
             ? a.rule.scale
             : 0;
}

/// Adds what query i of head h contributes to its result and to the gradients.
void add_row(const Problem& p, std::int64_t sample, std::int64_t h, std::int64_t i,
             Textbook& book) {
  const AttentionArguments& a = p.arguments;
  const std::int64_t group = h / (a.n / a.g);
  std::vector<double> score(static_cast<std::size_t>(a.sk)), slope(score.size(), 1.0),
      dp(score.size());
  const double sink = a.sinks != nullptr ? static_cast<double>(a.sinks[h]) : -kInfinity;
  double most = sink, sum = 0, size = 0;
  for (std::int64_t j = 0; j < a.sk; ++j) {
    const auto at = static_cast<std::size_t>(j);
    double dot = 0;
    for (std::int64_t c = 0; c < a.d; ++c) dot += p.q(i, sample, h, c) * p.k(j, sample, group, c);
    score[at] = dot * a.scale;
    if (a.softcap > 0) {
      const double t = std::tanh(score[at] / a.softcap);
      score[at] = t * a.softcap;
      slope[at] = 1 - t * t;
    }
    if (a.alibi_slopes != nullptr)
      score[at] += static_cast<double>(a.alibi_slopes[h]) *
                   static_cast<double>(a.k_start + j - a.q_start - i);
    const auto distance = static_cast<std::size_t>(h * a.distance_stride + a.k_start + j -
                                                   a.q_start - i + a.total_q - 1);
    if (a.distance_bias != nullptr) score[at] += static_cast<double>(p.distances[distance]);
    if (!sees(p, sample, i, j)) score[at] = -kInfinity;
    most = std::max(most, score[at]);
  }
  if (most > -kInfinity) sum = std::exp(sink - most);
  book.top[static_cast<std::size_t>((sample * a.n + h) * a.sq + i)] =
      *std::ranges::max_element(score);
  for (const double s : score) sum += most == -kInfinity ? 0 : std::exp(s - most);
  book.lse[static_cast<std::size_t>((sample * a.n + h) * a.sq + i)] =
      sum == 0 ? -kInfinity : most + std::log(sum);
  if (sum == 0) return;
  Sum* out = &book.out[static_cast<std::size_t>(((i * a.b + sample) * a.n + h) * a.dv)];
  double delta = 0;
  for (std::int64_t j = 0; j < a.sk; ++j) {
    const auto at = static_cast<std::size_t>(j);
    score[at] = std::exp(score[at] - most) / sum;
    const double kept = score[at] * keep_factor(p, sample, h, i, j);
    for (std::int64_t c = 0; c < a.dv; ++c) {
      const double v = p.v(j, sample, group, c), dout = p.dout(i, sample, h, c);
      out[c].add(kept * v, kept * v);
      book.dv[p.dv.at(j, sample, group, c)].add(kept * dout, kept * dout);
      dp[at] += dout * v * keep_factor(p, sample, h, i, j);
    }
    delta += score[at] * dp[at];
  }
  for (std::int64_t c = 0; c < a.dv; ++c)
    size += std::abs(p.dout(i, sample, h, c) * out[c].value) +
            std::abs(p.dout(i, sample, h, c)) * out[c].spread;
  for (std::int64_t j = 0; j < a.sk; ++j) {
    const auto at = static_cast<std::size_t>(j);
    const double factor = score[at] * slope[at] * a.scale, ds = factor * (dp[at] - delta),
                 rounded = std::abs(ds) + factor * size;
    if (a.distance_bias != nullptr)
      book.ddistances[static_cast<std::size_t>(h * a.distance_stride + a.k_start + j - a.q_start -
                                               i + a.total_q - 1)]
          .add(score[at] * (dp[at] - delta), score[at] * (std::abs(dp[at] - delta) + size));
    for (std::int64_t c = 0; c < a.d; ++c) {
      book.dq[p.dq.at(i, sample, h, c)].add(ds * p.k(j, sample, group, c),
                                            rounded * p.k(j, sample, group, c));
      book.dk[p.dk.at(j, sample, group, c)].add(ds * p.q(i, sample, h, c),
                                                rounded * p.q(i, sample, h, c));
    }
  }
}

Textbook textbook(const Problem& p) {
  Textbook book{std::vector<Sum>(p.out.size()),       std::vector<Sum>(p.dq.values.size()),
                std::vector<Sum>(p.dk.values.size()), std::vector<Sum>(p.dv.values.size()),
                std::vector<Sum>(p.distances.size()), std::vector<double>(p.lse.size()),
                std::vector<double>(p.lse.size())};
  for (std::int64_t sample = 0; sample < p.arguments.b; ++sample) {
    for (std::int64_t h = 0; h < p.arguments.n; ++h) {
      for (std::int64_t i = 0; i < p.arguments.sq; ++i) add_row(p, sample, h, i, book);
    }
  }
  return book;
}

/// Checks tolerances. A result is rounded once to its type (u·|exact|). With 16-bit types, so are
/// probabilities, gradients of scores and the result inside delta (u·spread). Sums in float32 may
/// miss by 2⁻¹⁸ of the largest element.
void expect_near(const Storage& actual, const std::vector<Sum>& exact, const std::string& what,
                 std::int64_t row = 0, std::int64_t used = 0) {
  const double u = actual.type() == Type::f32 ? 0 : epsilon_of(actual.type());
  double most = 0, worst = 0;
  for (const Sum& sum : exact) most = std::max({most, std::abs(sum.value), sum.spread * 0x1p-6});
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (row > 0 && static_cast<std::int64_t>(i) % row >= used)
      continue;  // this element lies between the rows of a view
    const double error = std::abs(actual[i] - exact[i].value),
                 bound =
                     u * (std::abs(exact[i].value) + exact[i].spread) + 0x1p-18 * most + 0x1p-24;
    worst = std::max(worst, std::isnan(error) ? kInfinity : error / bound);
  }
  EXPECT_LE(worst, 1) << what;
}

std::vector<Case> cases() {
  const auto drop = [](AttentionArguments& a) {
    a.has_dropout = true;
    a.rule = {.key = 77, .threshold = static_cast<std::uint32_t>(0.3 * 0x1p32), .scale = 1 / 0.7};
    a.first_head = 2;
  };
  static const float kSome = 0;
  return {
      {"one", 1, 1, 1, 1, 1, 8, 8},
      {"causal", 290, 290, 2, 2, 2, 16, 16},
      {"a part of every block", 49, 49, 1, 3, 3, 20, 36},
      {"odd channels", 65, 65, 1, 2, 1, 7, 5},
      {"bidirectional", 100, 70, 1, 2, 2, 64, 64, [](auto& a) { a.causal = false; }},
      {"groups", 97, 97, 2, 6, 2, 16, 16},
      {"one group", 70, 70, 1, 5, 1, 8, 40},
      {"more heads than rows of a block", 3, 9, 1, 50, 1, 4, 4, [](auto& a) { a.q_start = 6; }},
      {"many groups of several heads", 70, 70, 3, 6, 3, 8, 8},
      {"one query late", 1, 300, 2, 4, 2, 16, 16, [](auto& a) { a.q_start = 299; }},
      {"a chunk late", 70, 200, 1, 2, 2, 16, 16, [](auto& a) { a.q_start = 130; }},
      {"keys from the middle of a block", 130, 111, 1, 2, 1, 12, 12,
       [](auto& a) { a.q_start = 40, a.k_start = 39; }},
      {"window", 300, 300, 1, 2, 2, 16, 16,
       [](auto& a) {
         a.window = {70, 0};
       }},
      {"window both sides", 200, 230, 1, 2, 2, 16, 16,
       [](auto& a) {
         a.causal = false, a.window = {40, 35};
       }},
      {"chunks", 300, 300, 1, 2, 1, 16, 16, [](auto& a) { a.chunk = 70; }},
      {"chunks both ways, later", 100, 120, 1, 2, 2, 16, 16,
       [](auto& a) { a.causal = false, a.q_start = 30, a.k_start = 20, a.chunk = 33; }},
      {"blind queries", 120, 100, 1, 2, 2, 16, 16,
       [](auto& a) {
         a.k_start = 65, a.causal = false, a.window = {-1, 0};
       }},
      {"softcap", 90, 90, 1, 2, 2, 16, 16, [](auto& a) { a.softcap = 3; }},
      {"alibi", 90, 90, 1, 4, 2, 16, 16, [](auto& a) { a.alibi_slopes = &kSome; }},
      {"sinks", 140, 140, 2, 6, 2, 16, 16, [](auto& a) { a.sinks = &kSome; }},
      {"sinks of blind queries", 120, 100, 1, 2, 2, 16, 16,
       [](auto& a) {
         a.k_start = 65, a.causal = false, a.window = {-1, 0}, a.sinks = &kSome;
       }},
      {"documents", 200, 200, 2, 2, 2, 16, 16, [](auto&) {}, 97},
      {"documents longer than a block", 300, 300, 2, 2, 2, 16, 16, [](auto&) {}, 600},
      {"documents both ways", 130, 130, 2, 2, 1, 16, 16, [](auto& a) { a.causal = false; }, 97},
      {"documents of another sequence", 130, 200, 2, 2, 1, 16, 16,
       [](auto& a) {
         static const std::int32_t kAny = 0;
         a.causal = false, a.key_document_ids = &kAny;
       },
       97},
      {"bias of distances", 290, 290, 2, 4, 2, 16, 16, [](auto& a) { a.distance_bias = &kSome; }},
      {"bias of distances, many heads", 70, 70, 3, 6, 3, 8, 8,
       [](auto& a) { a.causal = false, a.distance_bias = &kSome; }},
      {"bias of distances and dropout, later", 130, 147, 1, 2, 2, 16, 16,
       [drop](auto& a) {
         drop(a);
         a.q_start = 19, a.k_start = 2, a.distance_bias = &kSome;
       },
       97},
      {"dropout", 71, 71, 3, 2, 2, 16, 16, drop},
      {"everything", 130, 147, 2, 4, 2, 18, 10,
       [drop](auto& a) {
         drop(a);
         a.q_start = 19, a.k_start = 2, a.window = {90, 0}, a.softcap = 4, a.alibi_slopes = &kSome;
       },
       97},
  };
}

struct Kind {
  const char* name;
  Type type;
  bool on_tiles = false;
};

class Attention : public testing::TestWithParam<Kind> {
 protected:
  Type type() const { return GetParam().type; }
  const MicroKernel* micro_kernel() const {
    static const MicroKernel tiles = emulation::amx_micro_kernel<EmulatedTiles>();
    return GetParam().on_tiles ? &tiles : &gemm_micro_kernel(type());
  }

  static void expect_scores(const std::vector<float>& actual, const std::vector<double>& exact,
                            const char* what) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (exact[i] == -kInfinity) {
        EXPECT_EQ(actual[i], -kInfinity) << what << " " << i;
      } else {
        EXPECT_NEAR(actual[i], exact[i], 1e-5 * std::max(1.0, std::abs(exact[i])))
            << what << " " << i;
      }
    }
  }

  void expect_textbook(const std::vector<Case>& all) const {
    for (const Case& c : all) {
      SCOPED_TRACE(c.name);
      Problem p(c, type(), micro_kernel());
      p.forward();
      p.backward();
      const Textbook exact = textbook(p);
      expect_near(p.out, exact.out, "out");
      expect_scores(p.lse, exact.lse, "lse");
      expect_scores(p.top, exact.top, "largest scores");
      expect_near(p.dq.values, exact.dq, "dq", p.dq.row(), c.n * c.d);
      expect_near(p.dk.values, exact.dk, "dk", p.dk.row(), c.g * c.d);
      expect_near(p.dv.values, exact.dv, "dv", p.dv.row(), c.g * c.dv);
      double most = 0;
      for (const Sum& sum : exact.ddistances) most = std::max(most, std::abs(sum.value));
      for (std::size_t i = 0; i < exact.ddistances.size(); ++i) {
        const auto& [value, spread] = exact.ddistances[i];
        if (spread > 0) {
          EXPECT_NEAR(p.ddistances[i], value,
                      (type() == Type::f32 ? 0 : epsilon_of(type())) * spread + 0x1p-16 * most)
              << "distance " << i;
        }
      }
    }
  }
};

TEST_P(Attention, EqualsTheTextbook) { expect_textbook(cases()); }

/// Ragged sizes, positions around the borders of blocks, and any combination of options.
std::vector<Case> random_cases(std::int64_t count) {
  std::vector<Case> all;
  std::uint64_t draws = 0;
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(philox_block(11, draws++, 0)[0] %
                                     static_cast<std::uint64_t>(end));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t g = 1 + below(2), d = 1 + below(9);
    Case c{std::to_string(i),
           1 + below(20),
           1 + below(40),
           1 + below(2),
           g * (1 + below(3)),
           g,
           d,
           below(2) == 0 ? d : 1 + below(9)};
    const bool has[] = {below(2) == 0, below(3) == 0, below(3) == 0,
                        below(3) == 0, below(3) == 0, below(3) == 0};
    const std::int64_t k_start = below(2) * (110 + below(18)), q_start = k_start + below(c.sk),
                       left = below(30) - 1, right = below(12) - 1, chunk = 1 + below(40);
    c.documents_span = below(3) == 0 ? 1 + below(150) : 0;
    c.set = [=](AttentionArguments& a) {
      static const float kSome = 0;
      a.q_start = q_start, a.k_start = k_start;
      a.causal = has[0];
      if (has[1]) a.window = {left, right};
      if (has[2]) a.chunk = chunk;
      if (has[3]) a.softcap = 3;
      if (has[4]) a.alibi_slopes = &kSome;
      if (has[5]) a.sinks = &kSome;
      a.has_dropout = chunk % 4 == 0;
      a.rule = {
          .key = 7, .threshold = static_cast<std::uint32_t>(0.25 * 0x1p32), .scale = 1 / 0.75};
    };
    all.push_back(std::move(c));
  }
  return all;
}

TEST_P(Attention, EveryCombinationEqualsTheTextbook) { expect_textbook(random_cases(1000)); }

TEST_P(Attention, DoesNotDependOnHowWorkIsShared) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Problem whole(c, type(), micro_kernel()), parts(c, type(), micro_kernel());
    whole.forward(), whole.backward();
    parts.forward(2), parts.backward(1);
    EXPECT_EQ(whole.out, parts.out);
    EXPECT_EQ(whole.lse, parts.lse);
    EXPECT_EQ(whole.dq.values, parts.dq.values);
    EXPECT_EQ(whole.dk.values, parts.dk.values);
    EXPECT_EQ(whole.dv.values, parts.dv.values);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(whole.ddistances)),
                                   std::as_bytes(std::span(parts.ddistances))));
  }
}

/// A query that is decoded alone, with the keys so far, gives the bits that it has among all the
/// others.
TEST_P(Attention, AQueryDoesNotDependOnTheOthers) {
  const Case all{"all", 280, 280, 2, 4, 2, 24, 24};
  Problem together(all, type(), micro_kernel());
  together.forward();
  for (const std::int64_t i : {0, 1, 47, 48, 127, 128, 129, 200, 279}) {
    for (const std::int64_t count : {std::int64_t{1}, std::min<std::int64_t>(5, 280 - i)}) {
      Case few = all;
      few.sq = count, few.sk = i + count;
      few.set = [i](AttentionArguments& a) { a.q_start = i; };
      Problem alone(few, type(), micro_kernel());
      alone.arguments.q = together.arguments.q;
      alone.arguments.q.data =
          static_cast<const char*>(together.arguments.q.data) +
          static_cast<std::int64_t>(together.q.at(i, 0, 0, 0)) * size_of(type());
      alone.arguments.k = together.arguments.k;
      alone.arguments.v = together.arguments.v;
      alone.forward();
      const std::size_t row = static_cast<std::size_t>(all.b * all.n * all.dv);
      for (std::size_t e = 0; e < alone.out.size(); ++e)
        ASSERT_EQ(alone.out[e], together.out[static_cast<std::size_t>(i) * row + e])
            << i << " " << e;
    }
  }
}

/// Draws of numbers below an end.
struct Draws {
  std::uint64_t seed, count = 0;
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(philox_block(seed, count++, 0)[0] %
                                     static_cast<std::uint64_t>(end));
  }
  /// Returns a number of tokens: one, a few, or more than a block.
  std::int64_t piece() {
    const std::int64_t most[] = {1, 5, 40, 300};
    return 1 + below(most[below(4)]);
  }
};

constexpr KvCacheType kCacheTypes[] = {KvCacheType::same, KvCacheType::int8, KvCacheType::fp8_e4m3};

void expect_same_blocks(Type type, const MicroKernel* micro_kernel) {
  Draws draws{3};
  for (const auto& [g, d, dv] : {std::array<std::int64_t, 3>{2, 64, 64}, {1, 40, 24}, {3, 7, 33}}) {
    for (std::int64_t i = 0; i < 20; ++i) {
      const std::int64_t sk = draws.piece() + draws.below(200);
      Problem p({"", 1, sk, 2, g, g, d, dv}, type, micro_kernel);
      const KvCacheType cache_type = kCacheTypes[i % 3];
      const CacheBlocks whole(p.arguments, cache_type), pieces(p.arguments, cache_type);
      p.forward_cached(whole, 0, sk, false);
      for (std::int64_t begin = 0, end = 0; begin < sk; begin = end) {
        end = std::min(sk, begin + draws.piece());
        p.forward_cached(pieces, begin, end, false, 1);
      }
      EXPECT_EQ(whole.memory, pieces.memory) << sk << " keys, " << d << " and " << dv;
    }
  }
}

TEST_P(Attention, KeysThatAreAppendedInPiecesAreThoseThatArePackedAtOnce) {
  expect_same_blocks(type(), micro_kernel());
}

TEST(AttentionInPairs, KeysThatAreAppendedInPiecesAreThoseThatArePackedAtOnce) {
  const MicroKernel pairs{.type = Type::bf16,
                          .pack = emulation::pack_pairs,
                          .copy = emulation::copy_pairs,
                          .multiply = nullptr};
  expect_same_blocks(Type::bf16, &pairs);
}

/// Returns the nearest number that 8 bits hold exactly, in a row whose largest magnitude is
/// largest_in_8_bits(): a multiple of 2⁻⁶, or an E4M3 number times 2⁻⁸.
double in_8_bits(double x, KvCacheType type) {
  if (type == KvCacheType::int8) return std::rint(x * 63) / 64;
  const double y = x * 200, exponent = std::floor(std::log2(std::max(std::abs(y), 0x1p-6))),
               unit = std::exp2(exponent - 3);
  return std::rint(y / unit) * unit / 256;
}
double largest_in_8_bits(KvCacheType type) {
  return type == KvCacheType::int8 ? 127.0 / 64 : 448.0 / 256;
}

/// Makes all keys and values what 8 bits hold exactly.
void round_to_8_bits(Problem& p, KvCacheType type) {
  for (Heads* x : {&p.k, &p.v}) {
    for (std::size_t e = 0; e < x->values.size(); ++e)
      x->values.set(e, in_8_bits(x->values[e], type));
    for (std::int64_t s = 0; s < p.arguments.sk; ++s)
      for (std::int64_t sample = 0; sample < x->b; ++sample)
        for (std::int64_t head = 0; head < x->heads; ++head)
          x->values.set(x->at(s, sample, head, (s + head) % x->channels),
                        s % 2 == 0 ? largest_in_8_bits(type) : -largest_in_8_bits(type));
  }
}

/// Some tokens hold NaN and are dropped again. In 8 bits keys and values are such that nothing is
/// rounded.
TEST_P(Attention, ToACacheHasTheBitsOfAttentionToRows) {
  std::vector<Case> all = cases();
  std::int64_t count = 0;
  for (Case& c : cases()) all.push_back(std::move(c));
  for (Case& c : cases()) all.push_back(std::move(c));
  for (Case& c : random_cases(300)) all.push_back(std::move(c));
  Draws draws{5};
  for (Case& c : all) {
    if (c.name.find("blind") != std::string::npos) continue;
    SCOPED_TRACE(c.name);
    const auto set = c.set;
    c.set = [set](AttentionArguments& a) {
      set(a);
      a.q_start -= a.k_start;
      a.k_start = 0;
    };
    Case longer = c;
    longer.sk += 40;
    Problem rows(c, type(), micro_kernel()), cached(c, type(), micro_kernel()),
        dropped(longer, type(), micro_kernel());
    for (Storage* x : {&dropped.k.values, &dropped.v.values})
      for (std::size_t e = 0; e < x->size(); ++e) x->set(e, std::nan(""));
    const KvCacheType cache_type = kCacheTypes[count++ % 3];
    SCOPED_TRACE(static_cast<int>(cache_type));
    if (cache_type != KvCacheType::same) {
      round_to_8_bits(rows, cache_type);
      round_to_8_bits(cached, cache_type);
    }
    rows.forward();
    const CacheBlocks cache(dropped.arguments, cache_type);
    std::int64_t begin = 0;
    const auto drop_some = [&] {
      const std::int64_t end = begin + draws.piece() + draws.below(80);
      if (begin < c.sk && draws.below(2) == 0)
        dropped.forward_cached(cache, begin, std::min(longer.sk, end), false);
    };
    while (begin < c.sk && draws.below(4) > 0) {
      drop_some();
      const std::int64_t end = std::min(c.sk, begin + draws.piece());
      cached.forward_cached(cache, begin, end, false);
      begin = end;
    }
    drop_some();
    cached.forward_cached(cache, begin, c.sk, true, 2);
    EXPECT_EQ(rows.out, cached.out);
    EXPECT_EQ(rows.lse, cached.lse);
    EXPECT_EQ(rows.top, cached.top);
  }
}

/// A number of a row is rounded by at most u times the largest magnitude: half a step of int8, or
/// of the largest numbers of E4M3, and what rounding to the micro-kernel's type adds. Scores then
/// differ by at most δ = scale · Σ |q| · u · max |k|, and probabilities by a factor within e^±2δ.
/// So a result differs by at most max |v| · (e^2δ − 1 + u), and by the rounding of probabilities
/// and results.
TEST_P(Attention, In8BitsErrsAsMuchAsTheRoundingOfKeysAndValues) {
  const Case c{"", 200, 200, 2, 4, 2, 16, 24, [](AttentionArguments& a) { a.scale = 0.1; }};
  for (const KvCacheType cache_type : {KvCacheType::int8, KvCacheType::fp8_e4m3}) {
    Problem p(c, type(), micro_kernel());
    const CacheBlocks cache(p.arguments, cache_type);
    p.forward_cached(cache, 0, 150, false);
    p.forward_cached(cache, 150, 200, true);
    const double eps = epsilon_of(type()),
                 u = (cache_type == KvCacheType::int8 ? 1.0 / 254 : 16.0 / 448) + eps / 2 + 0x1p-20,
                 most = 2;  // of numbers()
    const Textbook exact = textbook(p);
    double worst = 0;
    for (std::int64_t row = 0; row < c.sq * c.b * c.n; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < c.d; ++i)
        sum += std::abs(p.q(row / c.n / c.b, row / c.n % c.b, row % c.n, i));
      const double bound = most * (std::expm1(2 * 0.1 * sum * u * most) + u + 4 * eps + 0x1p-16);
      for (std::int64_t i = 0; i < c.dv; ++i) {
        const auto at = static_cast<std::size_t>(row * c.dv + i);
        const double error = std::abs(p.out[at] - exact.out[at].value);
        worst = std::max(worst, std::isnan(error) ? kInfinity : error / bound);
      }
    }
    EXPECT_LE(worst, 1) << static_cast<int>(cache_type);
    EXPECT_GT(worst, 1e-3) << "nothing is rounded";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Attention,
                         testing::Values(Kind{"f32", Type::f32}, Kind{"bf16", Type::bf16},
                                         Kind{"f16", Type::f16},
                                         Kind{"bf16_on_tiles", Type::bf16, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatron::kernels
