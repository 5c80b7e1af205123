#include "megatron/models/freeze.h"

#include <algorithm>
#include <functional>
#include <map>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/name_list.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/problems.h"
#include "megatron/models/model_units.h"
#include "megatron/tokenizers/regex.h"

namespace megatron {
namespace {

/// Finds regular expressions in names.
class NameMatcher {
 public:
  NameMatcher(std::string_view flag, const std::vector<std::string>& expressions) {
    for (const std::string& text : expressions)
      regexes_.emplace_back(text, std::string(flag) + " '" + text + "'", RegexDialect::rust);
  }
  bool operator()(const std::string& name) const {
    return std::ranges::any_of(regexes_, [&](const Regex& regex) {
      std::vector<Span> found;
      Regex::Finder(regex).find_all(name, 0, found);
      return !found.empty();
    });
  }

 private:
  std::vector<Regex> regexes_;
};

/// Returns the names of the parameters that could train.
std::vector<std::string> names_of(Model& model) {
  std::vector<std::string> names;
  for (const Parameter* parameter : declared_parameters(model))
    if (parameter->spec().kind != ParameterKind::state) names.push_back(parameter->name());
  return names;
}

void require_matches(Model& model, std::string_view flag, std::vector<std::string> expressions) {
  constexpr std::string_view kSyntax = "\\^$()*+?[]{}|";
  for (std::string& text : take_unmatched(model, flag, expressions)) {
    const std::string given = std::string(flag) + " '" + text + "'";
    std::vector<std::string> names = names_of(model);
    std::erase_if(text, [&](char c) { return kSyntax.find(c) != std::string_view::npos; });
    if (const std::string near = nearest_name(text, names); !near.empty()) names = {near};
    throw UserError({given, "matches no parameter", "use names such as" + name_lines(names)});
  }
}

}  // namespace

void freeze_parameters(Model& model, const OptimizerConfig& config) {
  const NameMatcher trains("--train-only", config.train_only), freezes("--freeze", config.freeze);
  for (Parameter* parameter : declared_parameters(model)) {
    const bool is_left_out = !config.train_only.empty() && !trains(parameter->name());
    if (is_left_out || freezes(parameter->name())) parameter->freeze();
  }
}

std::vector<std::string> take_unmatched(Model& model, std::string_view flag,
                                        std::vector<std::string>& expressions) {
  const auto first = std::ranges::stable_partition(
      expressions, [&, names = names_of(model)](const std::string& text) {
        const NameMatcher matches(flag, {text});
        return std::ranges::any_of(names, std::cref(matches));
      });
  std::vector<std::string> unmatched(first.begin(), first.end());
  expressions.erase(first.begin(), first.end());
  return unmatched;
}

std::string freeze_whole_model(Model& model, const OptimizerConfig& config) {
  if (config.freeze.empty() && config.train_only.empty()) return {};
  require_matches(model, "--train-only", config.train_only);
  require_matches(model, "--freeze", config.freeze);
  freeze_parameters(model, config);
  const std::vector<ModelUnit> units = model_units(model);
  struct Row {
    long long trained = 0, frozen = 0;
  };
  std::map<const ModelUnit*, Row> rows;
  Row all;
  for (const Parameter* parameter : declared_parameters(model)) {
    if (parameter->spec().kind == ParameterKind::state) continue;
    const auto column = parameter->is_trained() ? &Row::trained : &Row::frozen;
    const long long count = num_elements(parameter->sharding().global_shape);
    rows[find_unit(units, parameter->name())].*column += count;
    all.*column += count;
  }
  if (all.trained == 0)
    throw UserError({"--freeze and --train-only", "leave nothing to train",
                     "let an expression match fewer names"});
  std::string text = format("  %-20s %16s %16s\n", "parameters", "trained", "frozen");
  const auto add = [&text](const std::string& title, const Row& row) {
    text += format("  %-20s %16lld %16lld\n", title.c_str(), row.trained, row.frozen);
  };
  for (const auto& [unit, row] : rows) add(unit->title(), row);
  add("all", all);
  return text;
}

}  // namespace megatron
