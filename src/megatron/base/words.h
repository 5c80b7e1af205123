// Divides text into words.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace megatron {

/// Returns the parts of the text between white space.
inline std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace megatron
