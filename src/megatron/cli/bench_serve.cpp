// Implements `megatron bench-serve`: measures a server under load.
#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "megatron/base/files.h"
#include "megatron/base/words.h"
#include "megatron/cli/command.h"
#include "megatron/config/bench_serve_options.h"
#include "megatron/load_test/load.h"
#include "megatron/load_test/report.h"

namespace megatron {
namespace {

JsonText json_of(const BenchServeOptions& options, std::span<const Measurements> loads) {
  JsonText json{{"url", options.url},           {"model", options.model},
                {"endpoint", options.endpoint}, {"profile", options.profile},
                {"seed", options.seed},         {"data", options.data},
                {"loads", JsonText::array()}};
  for (const Measurements& load : loads) json["loads"].push_back(measurements_json(load));
  return json;
}

}  // namespace

int run_bench_serve(std::span<const std::string> args) {
  BenchServeOptions options = read_bench_serve_options(args);
  const char* key = std::getenv("OPENAI_API_KEY");
  if (options.api_key.empty() && key != nullptr) options.api_key = key;
  if (options.model.empty()) options.model = first_model(options);
  std::vector<std::int64_t> ids;
  if (options.endpoint == "completions") ids = tokenize(options, joined_text(Trace::words(), " "));
  const Trace trace(options, ids);
  if (!options.json)
    std::cout << options.model << " at " << options.url << ", " << options.endpoint
              << (ids.empty() ? ", prompts of words\n" : ", prompts of token ids\n");
  const auto loads = run_profile(options, [&](const Load& load) {
    Measurements measured = measure_records(load, run_load(load, options, trace));
    if (!options.json) std::cout << "\n" << measurements_text(measured) << std::flush;
    return measured;
  });
  if (options.json)
    std::cout << json_of(options, loads).dump(2) << "\n";
  else if (loads.size() > 1)
    std::cout << "\n" << comparison_text(loads);
  if (!options.output_plot.empty())
    write_file_atomically(options.output_plot,
                          latency_svg(loads, options.model + ", " + options.profile));
  const bool has_answers =
      std::ranges::any_of(loads, [](const Measurements& load) { return load.num_completed > 0; });
  return has_answers ? 0 : 1;
}

}  // namespace megatron
