#include "megatron/parallel/rank_list.h"

#include <cstddef>

namespace megatron {

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
