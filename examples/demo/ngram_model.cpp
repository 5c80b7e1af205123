#include "ngram_model.h"

#include <algorithm>
#include <cmath>

namespace megatron::demo {

namespace {

constexpr int kBits = 12;  // of one id in a packed n-gram, the newest lowest

constexpr std::uint64_t mask(int length) { return (std::uint64_t{1} << (kBits * length)) - 1; }

/// All n-grams of `length` in `tokens`, sorted.
std::vector<std::uint64_t> sorted_grams(std::span<const std::int64_t> tokens, int length) {
  std::vector<std::uint64_t> grams;
  grams.reserve(tokens.size());
  std::uint64_t window = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    window = (window << kBits | static_cast<std::uint64_t>(tokens[i])) & mask(length);
    if (i + 1 >= static_cast<std::size_t>(length)) grams.push_back(window);
  }
  std::sort(grams.begin(), grams.end());
  return grams;
}

std::unordered_map<std::uint64_t, std::uint32_t> count(const std::vector<std::uint64_t>& grams) {
  std::unordered_map<std::uint64_t, std::uint32_t> counts;
  for (const std::uint64_t gram : grams) ++counts[gram];
  return counts;
}

}  // namespace

NgramLevel::NgramLevel(std::unordered_map<std::uint64_t, std::uint32_t> counts)
    : counts_(std::move(counts)) {
  double ones = 0, twos = 0;
  for (const auto& [gram, count] : counts_) {
    Context& context = contexts_[gram >> kBits];
    context.total += count;
    ++context.types;
    ones += count == 1;
    twos += count == 2;
  }
  discount_ = ones > 0 ? ones / (ones + 2 * twos) : 0.5;
}

double NgramLevel::probability(std::uint64_t gram, double lower) const {
  const auto context = contexts_.find(gram >> kBits);
  if (context == contexts_.end()) return lower;
  const auto found = counts_.find(gram);
  const double count = found == counts_.end() ? 0 : found->second;
  return (std::max(count - discount_, 0.0) + discount_ * context->second.types * lower) /
         context->second.total;
}

NgramModels::NgramModels(std::span<const std::int64_t> tokens, std::int64_t vocab_size,
                         int max_order)
    : vocab_size_(vocab_size),
      raw_(static_cast<std::size_t>(max_order) + 1),
      continuation_(static_cast<std::size_t>(max_order)) {
  for (int length = 1; length <= max_order; ++length) {
    std::vector<std::uint64_t> grams = sorted_grams(tokens, length);
    raw_[static_cast<std::size_t>(length)] = NgramLevel(count(grams));
    if (length == 1) continue;
    grams.erase(std::unique(grams.begin(), grams.end()), grams.end());
    for (std::uint64_t& gram : grams) gram &= mask(length - 1);
    continuation_[static_cast<std::size_t>(length) - 1] = NgramLevel(count(grams));
  }
}

double NgramModels::probability(std::span<const std::int64_t> tokens, std::size_t position,
                                int order) const {
  const int longest =
      static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(order), position + 1));
  double result = 1.0 / static_cast<double>(vocab_size_);
  std::uint64_t gram = 0;
  for (int length = 1; length <= longest; ++length) {
    const auto oldest =
        static_cast<std::uint64_t>(tokens[position - static_cast<std::size_t>(length) + 1]);
    gram |= oldest << (kBits * (length - 1));
    const auto k = static_cast<std::size_t>(length);
    result = (length == order ? raw_[k] : continuation_[k]).probability(gram, result);
  }
  return result;
}

double NgramModels::loss(std::span<const std::int64_t> tokens, int order) const {
  double sum = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) sum -= std::log(probability(tokens, i, order));
  return sum / static_cast<double>(tokens.size());
}

}  // namespace megatron::demo
