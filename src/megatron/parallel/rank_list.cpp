#include "megatron/parallel/rank_list.h"

#include <cstddef>
#include <numeric>

namespace megatron {

std::vector<std::int64_t> all_ranks(std::int64_t size) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  return ranks;
}

std::string rank_list_text(const std::vector<std::int64_t>& ranks) {
  std::string text;
  for (std::size_t i = 0, next; i < ranks.size(); i = next) {
    for (next = i + 1; next < ranks.size() && ranks[next] == ranks[next - 1] + 1;) ++next;
    if (next - i == 2) next = i + 1;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (next - i > 1) text += "-" + std::to_string(ranks[next - 1]);
  }
  return text;
}

std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list_text(ranks);
}

}  // namespace megatron
