#include "megatron/config/blend_schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "megatron/base/files.h"
#include "megatron/base/words.h"
#include "megatron/config/data_config.h"
#include "megatron/config/field_values.h"

namespace megatron {
namespace {

constexpr const char* kForm = "write ITERATION: WEIGHT PREFIX WEIGHT PREFIX ... for each step";

[[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& fix) {
  throw UserError({"--blend-schedule" + what, got, fix});
}

bool is_step(const std::string& word) { return word.ends_with(':'); }

std::int64_t parse_iteration(const std::string& word) {
  const auto iteration = exact_number<std::int64_t>(word.substr(0, word.size() - 1));
  if (iteration.value_or(-1) < 0)
    refuse(": a step begins with the number of an iteration and a colon", word,
           "write for example 1000:");
  return *iteration;
}

void add_source(BlendStep& step, const std::string& weight, const std::string& prefix) {
  const std::string where = ", iteration " + std::to_string(step.iteration) + ": ";
  const auto value = float_value(weight);
  if (!value) refuse(where + "a weight must stand before " + prefix, weight, kForm);
  if (!(*value > 0) || !std::isfinite(*value))
    refuse(where + "the weight of " + prefix + " must be above zero", weight,
           "leave the source out of this step, or give it a weight");
  if (std::ranges::count(step.prefixes, prefix) > 0)
    refuse(where + prefix + " is given twice", "", "give each source one weight");
  step.prefixes.push_back(prefix);
  step.weights.push_back(*value);
}

}  // namespace

std::vector<BlendStep> parse_blend_schedule(const std::vector<std::string>& texts) {
  std::vector<std::string> words;
  for (const std::string& text : texts)
    for (std::string& word : split_words(text)) words.push_back(std::move(word));
  if (words.size() == 1 && !is_step(words[0])) words = split_words(read_file(words[0]));
  std::vector<BlendStep> steps;
  if (words.empty()) refuse(" is empty", "", kForm);
  if (!is_step(words[0])) refuse(" does not begin with an iteration", words[0], kForm);
  for (std::size_t i = 0; i < words.size();) {
    if (is_step(words[i])) {
      BlendStep step{.iteration = parse_iteration(words[i++]), .prefixes = {}, .weights = {}};
      if (!steps.empty() && step.iteration <= steps.back().iteration)
        refuse(
            ": the iterations do not increase",
            std::to_string(step.iteration) + " follows " + std::to_string(steps.back().iteration),
            "write the steps in ascending order");
      steps.push_back(std::move(step));
    } else {
      const bool has_prefix = i + 1 < words.size() && !is_step(words[i + 1]);
      if (!has_prefix)
        refuse(", iteration " + std::to_string(steps.back().iteration) +
                   ": a weight and a source must come in pairs",
               words[i], kForm);
      add_source(steps.back(), words[i], words[i + 1]);
      i += 2;
    }
    const bool ends_step = i == words.size() || is_step(words[i]);
    if (ends_step && steps.back().prefixes.empty())
      refuse(", iteration " + std::to_string(steps.back().iteration) + ": there are no sources", "",
             kForm);
  }
  return steps;
}

std::optional<UserError::Parts> blend_schedule_mistake(const DataConfig& data) {
  if (data.blend_schedule.empty()) return std::nullopt;
  try {
    parse_blend_schedule(data.blend_schedule);
    return std::nullopt;
  } catch (const UserError& error) {
    return error.parts();
  }
}

}  // namespace megatron
