#include "megatron/config/field_index.h"

#include "megatron/config/field_values.h"
#include "megatron/config/problems.h"

namespace megatron {

FieldIndex::FieldIndex(const FieldSet& fields) : fields_(fields) {
  for (const Field& field : fields.fields) {
    if (field.is_positional) continue;
    spellings_[field.flag().substr(2)] = {&field, false};
    for (const std::string& alias : field.aliases) spellings_[alias] = {&field, false};
    for (const std::string& off : field.off_flags) spellings_[off] = {&field, true};
  }
}

Spelling FieldIndex::find(const std::string& spelling) const {
  const auto found = spellings_.find(spelling);
  return found == spellings_.end() ? Spelling{} : found->second;
}

std::string FieldIndex::nearest(const std::string& spelling) const {
  std::vector<std::string> names{"help"};
  for (const auto& [name, meaning] : spellings_) {
    if (!meaning.field->is_hidden) names.push_back(name);
  }
  if (std::string near = nearest_name(spelling, names); !near.empty()) return near;
  for (const auto& [name, meaning] : spellings_) names.push_back(name);
  return nearest_name(spelling, names);
}

std::string inverted(const std::string& value) { return boolean_value(value) ? "false" : "true"; }

}  // namespace megatron
