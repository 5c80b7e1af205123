#include "megatron/config/problems.h"

#include <algorithm>

namespace megatron {
namespace {

std::string one_line(const UserError::Parts& parts) {
  std::string text = parts.problem();
  if (!parts.fix.empty()) text += "\n     fix: " + parts.fix;
  return text;
}

/// Returns the optimal string alignment distance. It keeps only three rows of the table.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

}  // namespace

void add_notes(const Notes& more, Notes& all) {
  for (const auto& [remark, flags] : more)
    for (const std::string& flag : flags)
      if (std::ranges::count(all[remark], flag) == 0) all[remark].push_back(flag);
}

void Problems::throw_if_any() const {
  if (list_.empty()) return;
  if (list_.size() == 1) throw UserError(list_.front());
  std::string text = std::to_string(list_.size()) + " problems";
  for (std::size_t i = 0; i < list_.size(); ++i)
    text += "\n  " + std::to_string(i + 1) + ". " + one_line(list_[i]);
  throw UserError(text);
}

bool is_misspelt(std::string_view word, std::string_view name) {
  constexpr std::size_t kShortest = 6, kLongest = 80;
  return word.size() >= kShortest && word.size() <= kLongest && edit_distance(word, name) <= 2;
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t kLongest = 80;
  if (name.empty() || name.size() > kLongest) return {};
  std::string best;
  std::size_t best_distance =
      std::max<std::size_t>(1, std::min<std::size_t>(name.size() / 3, 5)) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t gap = candidate.size() > name.size() ? candidate.size() - name.size()
                                                           : name.size() - candidate.size();
    if (gap >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  if (!best.empty()) return best;
  for (const std::string& candidate : candidates) {
    if (name.size() >= 4 && candidate.starts_with(name) &&
        (best.empty() || candidate.size() < best.size()))
      best = candidate;
  }
  return best;
}

}  // namespace megatron
