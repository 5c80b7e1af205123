// Shared by the programs of bench/: command line, exit codes, the median, and the file of --json.
#pragma once

#include <c10/core/ScalarType.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace megatron::bench {

/// Returns the wall-clock time in milliseconds. With BENCH_CLOCK=cpu in the environment it is the
/// CPU time of the process, which for one thread is the same but for what other programs take.
inline double now_ms() {
  static const char* const clock = std::getenv("BENCH_CLOCK");
  timespec time{};
  clock_gettime(
      clock != nullptr && std::string(clock) == "cpu" ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC,
      &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// [--dtype f32|bf16] [--turns N] [--json FILE] [SHAPE …]
struct Options {
  std::string dtype = "f32";
  int turns = 9;  ///< timed repetitions of each measurement
  std::string json = {};
  std::vector<std::string> shapes = {};

  c10::ScalarType type() const { return dtype == "f32" ? c10::kFloat : c10::kBFloat16; }
};

/// Parses a number of at least 1. Throws std::invalid_argument.
inline int parse_count(const std::string& what, const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1)
    throw std::invalid_argument(what + " is a number from 1 on, not \"" + text + "\"");
  return count;
}

/// Parses the command line. `usage` begins with the program's name and decides which flags exist
/// and whether shapes are accepted. `options` holds the defaults. Throws std::invalid_argument for
/// everything else.
inline Options parse_options(const std::vector<std::string>& words, const std::string& usage,
                             Options options = {}) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      options.shapes.push_back(word);
      continue;
    }
    if (usage.find("[" + word + " ") == std::string::npos || i + 1 == words.size())
      throw std::invalid_argument("usage: " + usage);
    const std::string& value = words[++i];
    if (word == "--dtype") options.dtype = value;
    if (word == "--turns") options.turns = parse_count(word, value);
    if (word == "--json") options.json = value;
  }
  if (options.dtype != "f32" && options.dtype != "bf16")
    throw std::invalid_argument("--dtype is f32 or bf16, not " + options.dtype);
  if (!options.shapes.empty() && usage.find("SHAPE") == std::string::npos)
    throw std::invalid_argument("usage: " + usage);
  return options;
}

/// Throws std::runtime_error if the file cannot be written.
inline void write(const std::string& name, const std::string& text) {
  std::ofstream file(name);
  if (!(file << text << "\n").flush()) throw std::runtime_error("cannot write " + name);
}

/// The main function of a program: calls run(words). If it throws, prints one line and returns 2
/// for errors of the command line (std::invalid_argument), else 1.
template <class Run>
int run_main(int count, char** words, const Run& run) {
  try {
    run(std::vector<std::string>(words + 1, words + count));
    return 0;
  } catch (const std::exception& error) {
    const std::string program = words[0];
    std::fprintf(stderr, "%s: %s\n", program.substr(program.rfind('/') + 1).c_str(), error.what());
    return dynamic_cast<const std::invalid_argument*>(&error) != nullptr ? 2 : 1;
  }
}

}  // namespace megatron::bench
