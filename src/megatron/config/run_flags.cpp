#include "megatron/config/run_flags.h"

#include <algorithm>
#include <set>

#include "megatron/config/known_flags.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

std::vector<std::string> spellings(const Field& field) {
  std::vector<std::string> all{field.flag().substr(2)};
  all.insert(all.end(), field.aliases.begin(), field.aliases.end());
  all.insert(all.end(), field.off_flags.begin(), field.off_flags.end());
  return all;
}

bool is_architecture(const Field& field) {
  const Field* legacy = legacy_table().set().find_name(field.name);
  return transformer_table().set().find_name(field.name) != nullptr ||
         (legacy != nullptr && legacy->member != MemberKey{});  // shorthands have no member
}

}  // namespace

std::vector<Field> run_flag_fields(const FieldSet& own, const RunFlagNotes& notes) {
  std::set<std::string> taken;
  for (const Field& field : own.fields) {
    for (std::string& spelling : spellings(field)) taken.insert(std::move(spelling));
  }
  std::vector<Field> added;
  const auto add = [&](Field field) {
    const auto is_taken = [&](const std::string& spelling) { return taken.contains(spelling); };
    if (is_taken(field.flag().substr(2))) return;
    std::erase_if(field.aliases, is_taken);
    std::erase_if(field.off_flags, is_taken);
    field.is_hidden = true;
    added.push_back(std::move(field));
  };
  for (Field field : settings_table().set().fields) {
    field.note = is_architecture(field) ? notes.architecture : notes.others;
    add(std::move(field));
  }
  for (Field& field : known_flag_fields()) add(std::move(field));
  return added;
}

}  // namespace megatron
