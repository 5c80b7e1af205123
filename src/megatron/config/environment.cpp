#include "megatron/config/environment.h"

#include <algorithm>
#include <sstream>

#include "megatron/base/words.h"
#include "megatron/config/field_index.h"
#include "megatron/config/launch_environment.h"

namespace megatron {
namespace {

constexpr std::string_view kPrefix = "MEGATRON_";

std::string spelling_of(std::string_view variable) {
  std::string text = lower_case(variable.substr(kPrefix.size()));
  std::ranges::replace(text, '_', '-');
  return text;
}

std::vector<std::string> values_of(const Field& field, const std::string& text) {
  if (!field.is_list || field.is_repeatable) return {text};
  std::istringstream words(text);
  std::vector<std::string> values;
  for (std::string word; words >> word;) values.push_back(word);
  return values;
}

}  // namespace

std::vector<Assignment> read_environment(const FieldIndex& index, char** environment, Notes& notes,
                                         Problems& problems) {
  std::vector<Assignment> assignments;
  for (char** entry = environment; *entry; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string variable(text.substr(0, equals));
    if (variable == kLaunchRestartVariable || variable == kLaunchMaxRestartsVariable ||
        variable == kLaunchStoreAddrVariable || variable == kLaunchStorePortVariable ||
        variable == kLaunchOwnAddrVariable || variable == kLaunchCauseVariable ||
        variable == kLaunchLinkVariable || variable == kJobTokenVariable)
      continue;
    const std::string spelling = spelling_of(variable);
    const Spelling meaning = index.find(spelling);
    if (meaning.field && !meaning.turns_off) {
      assignments.push_back({meaning.field,
                             values_of(*meaning.field, std::string(text.substr(equals + 1))),
                             {Origin::Kind::environment, variable},
                             "--" + spelling});
      continue;
    }
    const std::string near = index.nearest(spelling);
    if (near.empty() || !is_misspelt(spelling, near)) {
      notes["names no setting and is ignored"].push_back(variable);
    } else {
      problems.add({variable, "names no setting",
                    "did you mean " + index.find(near).field->environment_name() +
                        "? Otherwise unset the variable"});
    }
  }
  std::sort(assignments.begin(), assignments.end(), [](const Assignment& a, const Assignment& b) {
    return a.origin.where < b.origin.where;
  });
  return assignments;
}

}  // namespace megatron
