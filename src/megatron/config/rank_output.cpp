#include "megatron/config/rank_output.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {

StreamSet::StreamSet(const std::string& text, const std::string& flag, std::int64_t num_ranks) {
  const auto refuse = [&](const std::string& why) {
    throw UserError({flag + " " + text, why,
                     "write 1 (stdout), 2 (stderr) or 3 (both), or a list of local ranks with "
                     "theirs, such as 0:3,1:2"});
  };
  const auto streams = [&](const std::string& part) {
    const std::int64_t found = small_number(part).value_or(4);
    if (found > 3) refuse("does not name streams");
    return static_cast<int>(found);
  };
  if (text.find(':') == std::string::npos) {
    of_others_ = streams(text);
    return;
  }
  for (const std::string& item : split_at(text, ',')) {
    const std::vector<std::string> words = split_at(item, ':');
    const auto rank = words.size() == 2 ? small_number(words[0]) : std::nullopt;
    if (!rank) refuse("does not name streams");
    if (*rank >= num_ranks) refuse("this host has no rank " + words[0]);
    if (!of_rank_.emplace(*rank, streams(words[1])).second) refuse("gives a rank twice");
  }
}

bool StreamSet::is_empty() const {
  return of_others_ == 0 &&
         std::ranges::all_of(of_rank_, [](const auto& entry) { return entry.second == 0; });
}

bool StreamSet::contains(std::int64_t local_rank, OutputStream stream) const {
  const auto found = of_rank_.find(local_rank);
  const int streams = found == of_rank_.end() ? of_others_ : found->second;
  return (streams & static_cast<int>(stream)) != 0;
}

bool RankOutput::logs(std::int64_t local_rank, OutputStream stream) const {
  return (redirects.is_empty() && tee.is_empty()) || redirects.contains(local_rank, stream) ||
         tee.contains(local_rank, stream);
}

bool RankOutput::shows(std::int64_t local_rank, OutputStream stream) const {
  return (shown_ranks.empty() || std::ranges::count(shown_ranks, local_rank) > 0) &&
         (tee.contains(local_rank, stream) || !redirects.contains(local_rank, stream));
}

}  // namespace megatron
