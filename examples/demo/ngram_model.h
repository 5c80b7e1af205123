// Interpolated Kneser–Ney n-gram models of byte streams (Kneser and Ney 1995; Chen and Goodman
// 1998, §4.1): what counting alone achieves.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace megatron::demo {

/// The largest order and the number of ids that a packed n-gram has room for.
inline constexpr int kMaxOrder = 5;
inline constexpr std::int64_t kMaxVocabulary = 4096;

/// Counts of the n-grams of one length, discounted by D = n₁ / (n₁ + 2·n₂).
class NgramLevel {
 public:
  NgramLevel() = default;
  explicit NgramLevel(std::unordered_map<std::uint64_t, std::uint32_t> counts);

  /// max(c(h, w) − D, 0) / c(h) + D · types(h) / c(h) · lower; `lower` itself where the context h
  /// was never seen.
  double probability(std::uint64_t gram, double lower) const;

 private:
  struct Context {
    std::uint32_t total = 0, types = 0;
  };
  std::unordered_map<std::uint64_t, std::uint32_t> counts_;
  std::unordered_map<std::uint64_t, Context> contexts_;
  double discount_ = 0;
};

/// Models of every order up to `max_order` over one training stream.
class NgramModels {
 public:
  /// `tokens` lie in [0, vocab_size), vocab_size ≤ kMaxVocabulary; 1 ≤ max_order ≤ kMaxOrder.
  NgramModels(std::span<const std::int64_t> tokens, std::int64_t vocab_size, int max_order);

  /// Mean −log p of every token given the order − 1 before it, in nats.
  double loss(std::span<const std::int64_t> tokens, int order) const;

 private:
  double probability(std::span<const std::int64_t> tokens, std::size_t position, int order) const;

  std::int64_t vocab_size_;
  std::vector<NgramLevel> raw_;  ///< [k]: how often each k-gram occurs; the top level of order k
  std::vector<NgramLevel>
      continuation_;  ///< [k]: how many different tokens precede each k-gram; the levels below
};

}  // namespace megatron::demo
