#include <charconv>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/cli/plan_parts.h"

namespace megatron {
namespace {

StageCost operator*(StageCost cost, double factor) {
  for (double* part : {&cost.forward_s, &cost.backward_input_s, &cost.backward_weight_s,
                       &cost.activation, &cost.weight_gradient})
    *part *= factor;
  return cost;
}

StageCost operator+(const StageCost& a, const StageCost& b) {
  return {a.forward_s + b.forward_s, a.backward_input_s + b.backward_input_s,
          a.backward_weight_s + b.backward_weight_s, a.activation + b.activation,
          a.weight_gradient + b.weight_gradient};
}

[[noreturn]] void refuse(const std::string& word, const std::string& place) {
  throw UserError({"--stage-times" + place +
                       " must be F,B,W or F,B,W,A (times above 0 of the forward pass, the input "
                       "gradients and the weight gradients, and the activation memory; each at "
                       "most 1e15)",
                   word, "write for example --stage-times 1,1,1"});
}

constexpr double kLargest = 1e15;  ///< sums over any schedule stay finite

/// An activation memory below 0 denotes the default.
StageCost parse_part(const std::string& word, const std::string& place) {
  std::vector<double> numbers;
  const char* const end = word.data() + word.size();
  for (const char* at = word.data();; ++at) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || !(number >= 0 && number <= kLargest)) refuse(word, place);
    numbers.push_back(number);
    at = next;
    if (at == end) break;
    if (*at != ',') refuse(word, place);
  }
  if (numbers.size() < 3 || numbers.size() > 4 || numbers[0] <= 0 || numbers[1] <= 0 ||
      numbers[2] <= 0)
    refuse(word, place);
  const double kept = numbers.size() == 4 ? numbers[3] : -1;
  return {numbers[0], numbers[1], numbers[2], kept, kept};
}

std::vector<StageCost> read_parts(const std::string& path) {
  std::vector<StageCost> parts;
  std::istringstream lines(read_file(path));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = line.substr(0, line.find('#'));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty())
      parts.push_back(parse_part(line, ", " + path + ":" + std::to_string(number) + ","));
  }
  if (parts.empty()) throw UserError({"--stage-times: " + path + " has no line F,B,W", "", ""});
  return parts;
}

}  // namespace

std::vector<StageCost> parse_stage_times(const std::vector<std::string>& words,
                                         std::int64_t num_ranks) {
  std::vector<StageCost> parts;
  if (words.size() == 1 && fs::is_regular_file(words[0])) {
    parts = read_parts(words[0]);
  } else {
    for (const std::string& word : words) parts.push_back(parse_part(word, ""));
  }
  if (parts.size() == 1) parts.resize(static_cast<std::size_t>(num_ranks), parts[0]);
  const double share = static_cast<double>(num_ranks) / static_cast<double>(parts.size());
  for (StageCost& part : parts) {
    if (part.activation < 0) part.activation = part.weight_gradient = share;
  }
  return parts;
}

std::vector<StageCost> regroup_stage_costs(const std::vector<StageCost>& parts,
                                           std::int64_t num_stages) {
  const auto wanted = static_cast<std::size_t>(num_stages);
  std::vector<StageCost> stages;
  if (wanted % parts.size() == 0) {
    const std::size_t pieces = wanted / parts.size();
    for (const StageCost& part : parts)
      stages.insert(stages.end(), pieces, part * (1 / static_cast<double>(pieces)));
  } else if (parts.size() % wanted == 0) {
    const std::size_t joined = parts.size() / wanted;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i % joined == 0)
        stages.push_back(parts[i]);
      else
        stages.back() = stages.back() + parts[i];
    }
  } else {
    throw UserError({"--stage-times has the times of " + std::to_string(parts.size()) +
                         " parts of the model, which do not make " + std::to_string(num_stages) +
                         " stages (ranks times chunks)",
                     "", "give one F,B,W for all ranks alike, or one for each stage"});
  }
  return stages;
}

}  // namespace megatron
