#include "megatron/tokenizers/hugging_face/aligned_text.h"

namespace megatron::hugging_face {

AlignedText::AlignedText(std::string_view original) : text(original) {
  places.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_code_point(text, at);
    places.resize(at, Span{begin, at});
  }
}

void AlignedText::rewrite(const CharacterChanges& changes) {
  std::string new_text;
  std::vector<Span> new_places;
  new_text.reserve(text.size());
  new_places.reserve(text.size());
  std::size_t next = 0;  // the first byte whose place is not taken
  const auto take_character = [&] {
    if (next < text.size()) next_code_point(text, next);
  };
  for (const auto& [character, change] : changes) {
    const std::size_t from = change > 0 ? next - 1 : next;  // wraps before the first
    append_utf8(new_text, character);
    new_places.resize(new_text.size(), from < places.size() ? places[from] : Span{0, 0});
    for (int taken = change; taken <= 0; ++taken) take_character();
  }
  text = std::move(new_text);
  places = std::move(new_places);
}

void AlignedText::replace(std::span<const Span> matches, std::string_view content) {
  std::string new_text;
  std::vector<Span> new_places;
  std::size_t copied = 0;
  const auto copy_to = [&](std::size_t end) {
    new_text.append(text, copied, end - copied);
    new_places.insert(new_places.end(), places.begin() + static_cast<std::ptrdiff_t>(copied),
                      places.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (const Span& match : matches) {
    copy_to(match.begin);
    new_text.append(content);
    new_places.resize(new_text.size(), match.end > 0 ? places[match.end - 1] : Span{0, 0});
    copied = match.end;
  }
  copy_to(text.size());
  text = std::move(new_text);
  places = std::move(new_places);
}

void AlignedText::prepend(std::string_view prefix) {
  if (text.empty()) return;
  text.insert(0, prefix);
  const Span first = places.front();
  places.insert(places.begin(), prefix.size(), first);
}

void AlignedText::cut(std::size_t begin, std::size_t end) {
  text = text.substr(begin, end - begin);
  places = {places.begin() + static_cast<std::ptrdiff_t>(begin),
            places.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace megatron::hugging_face
