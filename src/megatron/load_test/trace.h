// The requests of a load and the gaps between them. Both are functions of the seed and the number
// of the request alone, so every run and every load of a sweep has the same ones.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "megatron/config/bench_serve_options.h"

namespace megatron {

/// When requests start: `rate` a second on average, infinity for at once.
struct Arrivals {
  double rate = std::numeric_limits<double>::infinity();
  std::optional<double> burstiness;  ///< nullopt: at equal distances
};

class Trace {
 public:
  /// Requests ask for options.model. `alphabet` has the ids of which prompts are made; empty: they
  /// are made of words. Throws a UserError for wrong lengths, or with the line of a wrong file.
  Trace(const BenchServeOptions& options, std::vector<std::int64_t> alphabet);

  /// Returns the JSON body of request number `index`.
  std::string body(std::int64_t index) const;
  /// Returns the seconds between the starts of the previous request and of this one.
  double gap(const Arrivals& arrivals, std::int64_t index) const;

  /// Returns the common words of which prompts are made.
  static const std::vector<std::string>& words();

 private:
  std::mt19937_64 generator(std::string_view site, std::int64_t index) const;
  std::int64_t draw_length(const std::string& text, std::int64_t index) const;

  BenchServeOptions options_;
  std::vector<std::int64_t> alphabet_;
  std::map<std::string, std::int64_t> lengths_;  ///< such as "prompt_tokens_stdev"
  std::vector<std::string> rows_;  ///< of a file: the members that a request takes from it
};

}  // namespace megatron
