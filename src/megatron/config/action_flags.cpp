#include "megatron/config/action_flags.h"

#include <algorithm>
#include <string>

#include "megatron/base/error.h"
#include "megatron/config/problems.h"

namespace megatron {
namespace {

std::string advice(const std::vector<std::string_view>& actions) {
  if (actions.empty()) return "leave it out; it has an effect in runs only";
  std::string names;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (i > 0) names += i + 1 < actions.size() ? ", " : " and ";
    names += actions[i];
  }
  return "leave it out; it is for " + names;
}

}  // namespace

const std::vector<std::string_view>& actions_of(const Field& field,
                                                std::span<const FlagActions> uses) {
  for (const std::string& name : {field.name, field.group}) {
    const auto found =
        std::ranges::find_if(uses, [&](const FlagActions& use) { return use.name == name; });
    if (found != uses.end()) return found->actions;
  }
  MEGATRON_CHECK(false, "no action is known to use ", field.flag());
}

void refuse_unused_flags(const FieldSet& fields, const ParseResult& parsed, std::string_view action,
                         std::span<const FlagActions> uses) {
  Problems problems;
  for (const Field& field : fields.fields) {
    if (field.is_positional) continue;
    const std::vector<std::string_view>& actions = actions_of(field, uses);
    if (parsed.is_set(field.name) && std::ranges::find(actions, action) == actions.end())
      problems.add({parsed.origin(field.name).where + " has no effect on " + std::string(action),
                    "", advice(actions)});
  }
  problems.throw_if_any();
}

}  // namespace megatron
