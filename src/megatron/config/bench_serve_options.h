// The settings of `bench-serve`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace megatron {

template <class Options>
class FieldTable;

struct BenchServeOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string model;  ///< "": the first one that the server lists
  std::string api_key;
  std::string endpoint = "completions";
  std::string profile;                    ///< "" until read: by the rate
  std::vector<std::string> request_rate;  ///< numbers or "inf", as `rates` has them
  std::vector<double> rates;
  double burstiness = 1;
  std::int64_t max_concurrency = 1000;
  std::optional<std::int64_t> num_prompts;
  std::optional<double> max_seconds;
  std::string data = "prompt_tokens=256,output_tokens=128";
  std::int64_t prefix_tokens = 0, num_prefixes = 1;
  bool ignore_eos = true;
  std::string extra_body;
  std::int64_t seed = 1;
  double timeout_seconds = 600;
  bool json = false;
  std::string output_plot;
};

const FieldTable<BenchServeOptions>& bench_serve_table();

/// Reads the flags. Sets `rates`, the profile that they mean, and the number of prompts if nothing
/// limits a load. Throws a UserError if a profile and its rates do not fit together.
BenchServeOptions read_bench_serve_options(std::span<const std::string> args);

}  // namespace megatron
