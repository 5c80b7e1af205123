#include "megatron/config/rank_output.h"

#include <algorithm>
#include <optional>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::optional<std::int64_t> number(const std::string& text) {
  const bool is_number =
      !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::optional<std::int64_t>(std::stoll(text)) : std::nullopt;
}

}  // namespace

StreamSet::StreamSet(const std::string& text, const std::string& flag) {
  const auto streams = [&](const std::string& part) {
    const auto found = number(part);
    if (!found || *found > 3)
      throw UserError({flag + " " + text, "does not name streams",
                       "write 1 (stdout), 2 (stderr) or 3 (both), or a list of local ranks with "
                       "theirs, such as 0:3,1:2"});
    return static_cast<int>(*found);
  };
  if (text.find(':') == std::string::npos) {
    of_others_ = streams(text);
    return;
  }
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t colon = std::min(item.find(':'), item.size());
    const auto rank = number(item.substr(0, colon));
    of_rank_[rank.value_or(-1)] =
        streams(rank ? item.substr(std::min(colon + 1, item.size())) : "");
    begin = end + 1;
  }
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
