// The weights of training sources over a run. The first byte of the input chooses whether the rest
// is the file that --blend-schedule names or the words of the flag, separated by NUL bytes.
#include "megatron/config/blend_schedule.h"

#include <cmath>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/words.h"

namespace megatron::fuzz {

void parse_blend_schedules(std::string_view input) {
  if (input.empty()) return;
  const bool is_file = input[0] % 2 == 0;
  input.remove_prefix(1);
  std::vector<std::string> words;
  if (is_file) {
    words = {write_input("schedule", input)};
  } else {
    while (!input.empty()) words.emplace_back(take_part(input));
    std::size_t count = 0;
    for (const std::string& word : words) count += split_words(word).size();
    if (count < 2) return;  // a single word names a file, which may be any
  }
  std::int64_t before = -1;
  for (const BlendStep& step : parse_blend_schedule(words)) {
    require(step.iteration > before, "the iterations do not increase");
    require(!step.prefixes.empty() && step.prefixes.size() == step.weights.size(),
            "weights and sources are no pairs");
    for (const double weight : step.weights)
      require(weight > 0 && std::isfinite(weight), "a weight is not above zero");
    before = step.iteration;
  }
}

}  // namespace megatron::fuzz
