#include "megatron/inference/sampling/stop_strings.h"

#include <algorithm>
#include <utility>

namespace megatron {

std::string StopStrings::add(std::string_view piece, bool may_stop) {
  if (has_stopped_) {
    num_cut_bytes_ += piece.size();
    return {};
  }
  held_ += piece;
  if (!may_stop) first_end_ = held_.size() + 1;
  std::size_t best_begin = std::string::npos, best_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t from = first_end_ > stop.size() ? first_end_ - stop.size() : 0;
    const std::size_t begin = held_.find(stop, from);
    if (begin == std::string::npos) continue;
    if (std::pair(begin + stop.size(), begin) < std::pair(best_end, best_begin))
      best_end = begin + stop.size(), best_begin = begin, stop_string_ = stop;
  }
  has_stopped_ = best_begin != std::string::npos;
  std::size_t shown = keeps_stop_ ? best_end : best_begin;
  if (has_stopped_) {
    num_cut_bytes_ = held_.size() - shown;
  } else {
    std::size_t kept = 0;
    for (const std::string& stop : stops_)
      for (std::size_t size = std::min(held_.size(), stop.size() - 1); size > kept; --size)
        if (held_.ends_with(std::string_view(stop).substr(0, size))) kept = size;
    shown = held_.size() - kept;
  }
  const std::string text = held_.substr(0, shown);
  held_ = has_stopped_ ? "" : held_.substr(shown);
  first_end_ -= std::min(first_end_, shown);
  return text;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

GeneratedText::GeneratedText(const Tokenizer& tokenizer, std::span<const std::int64_t> prompt,
                             const SamplingParams& params)
    : decoder_(tokenizer, std::vector<std::int32_t>(prompt.begin(), prompt.end()),
               params.skip_special_tokens ? SpecialTokens::skip : SpecialTokens::keep),
      stops_(params.stop, params.include_stop) {}

std::string GeneratedText::add(std::int64_t id, bool may_stop) {
  return stops_.add(decoder_.add(static_cast<std::int32_t>(id)), may_stop);
}

std::string GeneratedText::finish() {
  std::string text = stops_.add(decoder_.finish());
  return text += stops_.finish();
}

}  // namespace megatron
