// Random damage for fuzz tests: flips bytes, truncates, removes and doubles runs, changes digits.
#pragma once

#include <algorithm>
#include <cctype>
#include <random>
#include <string>

namespace megatron {

inline std::string mutate(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t bound) { return bound == 0 ? 0 : random() % bound; };
  for (std::size_t change = 0, changes = 1 + below(3); change < changes && !text.empty();
       ++change) {
    const std::size_t at = below(text.size()),
                      length = std::min<std::size_t>(below(24), text.size() - at);
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        text[at] = "{}[]\",:-0e."[below(11)];
        break;
      default:
        for (std::size_t i = at; i < text.size(); ++i) {
          if (std::isdigit(static_cast<unsigned char>(text[i]))) {
            text[i] = static_cast<char>('0' + below(10));
            break;
          }
        }
    }
  }
  return text;
}

}  // namespace megatron
