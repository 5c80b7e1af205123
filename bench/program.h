// What the programs of bench/ share: their command line, their end, and the median.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace megatron::bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// [--dtype f32|bf16] [--turns N] [--json FILE] [SHAPE …]
struct Options {
  std::string dtype = "f32";
  int turns = 9;  ///< that count, of each thing that is timed
  std::string json = {};
  std::vector<std::string> shapes = {};

  c10::ScalarType type() const { return dtype == "f32" ? c10::kFloat : c10::kBFloat16; }
};

/// `usage` is what stands behind the program's name; it also says which flags there are. Throws std::invalid_argument.
inline Options options_of(const std::vector<std::string>& words, const std::string& usage) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      options.shapes.push_back(word);
      continue;
    }
    if (usage.find("[" + word + " ") == std::string::npos || i + 1 == words.size()) throw std::invalid_argument("usage: " + usage);
    const std::string& value = words[++i];
    if (word == "--dtype") options.dtype = value;
    if (word == "--turns") options.turns = std::max(1, std::atoi(value.c_str()));
    if (word == "--json") options.json = value;
  }
  if (options.dtype != "f32" && options.dtype != "bf16") throw std::invalid_argument("--dtype is f32 or bf16, not " + options.dtype);
  if (!options.shapes.empty() && usage.find("SHAPE") == std::string::npos) throw std::invalid_argument("usage: " + usage);
  return options;
}

/// A program's main: run(words); exit code 2 and one line when it throws.
template <class Run>
int main_of(int count, char** words, const Run& run) {
  try {
    run(std::vector<std::string>(words + 1, words + count));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", std::string(words[0]).substr(std::string(words[0]).rfind('/') + 1).c_str(), error.what());
    return 2;
  }
}

}  // namespace megatron::bench
