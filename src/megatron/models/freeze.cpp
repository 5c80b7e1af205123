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

constexpr std::string_view kFreeze = "--freeze", kTrainOnly = "--train-only";

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

/// Returns the names that an expression may have meant: the nearest one, or those of a few.
std::vector<std::string> near_names(const std::string& expression,
                                    const std::vector<std::string>& names) {
  constexpr std::string_view kSyntax = "\\^$()*+?[]{}|";
  std::string plain = expression;
  std::erase_if(plain, [](char c) { return kSyntax.find(c) != std::string_view::npos; });
  if (std::string near = nearest_name(plain, names); !near.empty()) return {near};
  return names;
}

void require_matches(Model& model, std::string_view flag, std::vector<std::string> expressions) {
  for (const std::string& text : take_unmatched(model, flag, expressions))
    throw UserError(
        {std::string(flag) + " '" + text + "'", "matches no parameter",
         "parameters are named, for example:" + name_lines(near_names(text, names_of(model)))});
}

}  // namespace

void freeze_parameters(Model& model, const OptimizerConfig& config) {
  const NameMatcher trains(kTrainOnly, config.train_only), freezes(kFreeze, config.freeze);
  for (Parameter* parameter : declared_parameters(model)) {
    const bool is_left_out = !config.train_only.empty() && !trains(parameter->name());
    if (is_left_out || freezes(parameter->name())) parameter->freeze();
  }
}

std::vector<std::string> take_unmatched(Model& model, std::string_view flag,
                                        std::vector<std::string>& expressions) {
  std::vector<std::string> unmatched;
  std::erase_if(expressions, [&, names = names_of(model)](const std::string& text) {
    const NameMatcher matches(flag, {text});
    if (std::ranges::any_of(names, std::cref(matches))) return false;
    unmatched.push_back(text);
    return true;
  });
  return unmatched;
}

std::string freeze_whole_model(Model& model, const OptimizerConfig& config) {
  if (config.freeze.empty() && config.train_only.empty()) return {};
  require_matches(model, kTrainOnly, config.train_only);
  require_matches(model, kFreeze, config.freeze);
  freeze_parameters(model, config);
  const std::vector<ModelUnit> units = model_units(model);
  struct Row {
    long long trained = 0, frozen = 0;
  };
  std::map<const ModelUnit*, Row> rows;
  Row all;
  for (const Parameter* parameter : declared_parameters(model)) {
    if (parameter->spec().kind == ParameterKind::state) continue;
    const auto member = parameter->is_trained() ? &Row::trained : &Row::frozen;
    const long long count = num_elements(parameter->sharding().global_shape);
    rows[find_unit(units, parameter->name())].*member += count;
    all.*member += count;
  }
  if (all.trained == 0)
    throw UserError({"--freeze and --train-only leave nothing to train",
                     std::to_string(all.frozen) + " parameters are frozen",
                     "let an expression match fewer names"});
  const auto line = [](const std::string& title, const Row& row) {
    return format("  %-20s %16lld %16lld\n", title.c_str(), row.trained, row.frozen);
  };
  std::string text = format("  %-20s %16s %16s\n", "parameters", "trained", "frozen");
  for (const auto& [unit, row] : rows) text += line(unit->title(), row);
  return text + line("all", all);
}

}  // namespace megatron
