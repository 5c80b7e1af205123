#include "megatron/models/freeze.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/name_list.h"
#include "megatron/base/pattern.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/problems.h"
#include "megatron/models/model.h"

namespace megatron {
namespace {

using Expressions = std::vector<std::string>;

/// Calls `use`. Throws a UserError when it throws why an expression of `flag` cannot be used.
template <class Use>
auto with_expression(const std::string& flag, const std::string& text, const Use& use) {
  try {
    return use();
  } catch (const std::string& reason) {
    throw UserError({flag + ": the regular expression is not usable",
                     reason + " in \"" + text + "\"", "check the pattern"});
  }
}

/// Returns a function that finds one of the expressions in a name.
std::function<bool(const std::string& name)> matcher(const std::string& flag,
                                                     const Expressions& expressions) {
  const auto patterns = std::make_shared<std::map<std::string, Pattern>>();
  for (const std::string& text : expressions)
    with_expression(flag, text, [&] { patterns->try_emplace(text, text, Pattern::Anchors::text); });
  return [flag, patterns](const std::string& name) {
    return std::ranges::any_of(*patterns, [&](const auto& one) {
      return with_expression(flag, one.first,
                             [&] { return Pattern::Finder(one.second).find(name).has_value(); });
    });
  };
}

/// Returns the names of the parameters that could train.
std::vector<std::string> names_of(Model& model) {
  std::vector<std::string> names;
  for (const Parameter* parameter : declared_parameters(model))
    if (parameter->spec().kind != ParameterKind::state) names.push_back(parameter->name());
  return names;
}

void require_matches(Model& model, const std::string& flag, Expressions expressions) {
  constexpr std::string_view kSyntax = "\\^$()*+?[]{}|";
  for (std::string& text : take_unmatched(model, flag, expressions)) {
    const std::string given = flag + " '" + text + "'";
    std::vector<std::string> names = names_of(model);
    std::erase_if(text, [&](char c) { return kSyntax.find(c) != std::string_view::npos; });
    if (const std::string near = nearest_name(text, names); !near.empty()) names = {near};
    throw UserError({given, "matches no parameter", "use names such as" + name_lines(names)});
  }
}

}  // namespace

void freeze_parameters(Model& model, const OptimizerConfig& config) {
  const auto trains = matcher("--train-only", config.train_only),
             freezes = matcher("--freeze", config.freeze);
  for (Parameter* parameter : declared_parameters(model)) {
    const bool is_left_out = !config.train_only.empty() && !trains(parameter->name());
    if (is_left_out || freezes(parameter->name())) parameter->freeze();
  }
}

std::vector<std::string> take_unmatched(Model& model, const std::string& flag,
                                        std::vector<std::string>& expressions) {
  const auto is_used = [&, names = names_of(model)](const std::string& text) {
    return std::ranges::any_of(names, matcher(flag, {text}));
  };
  const auto unused = std::ranges::stable_partition(expressions, is_used);
  std::vector<std::string> unmatched(unused.begin(), unused.end());
  expressions.erase(unused.begin(), unused.end());
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
