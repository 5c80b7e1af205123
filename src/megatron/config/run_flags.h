// Makes other commands accept the flags of a training run, so that the flags of a launch script can
// be reused unchanged.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "megatron/config/field_table.h"

namespace megatron {

struct Settings;

/// The notes of a command about the flags of a run that it does not use.
struct RunFlagNotes {
  std::string architecture;  ///< note on flags of the architecture
  std::string others;        ///< note on all other flags
};

/// Returns the fields of `megatron pretrain` that are not in `own` as hidden fields: settings,
/// which are read into a Settings object, and known flags, which are treated as in `pretrain`.
std::vector<Field> run_flag_fields(const FieldSet& own, const RunFlagNotes& notes);

/// Adds these fields to `table`; they set `member`. Call it after the table's own fields are
/// declared.
template <class T>
void include_run_flags(FieldTable<T>& table, Settings T::*member, const RunFlagNotes& notes) {
  for (Field& field : run_flag_fields(table.set(), notes)) {
    field.set = [member, set = field.set](void* object, std::span<const std::string> values) {
      set(&(static_cast<T*>(object)->*member), values);
    };
    field.get = [member, get = field.get](const void* object) {
      return get(&(static_cast<const T*>(object)->*member));
    };
    table.add_field(std::move(field));
  }
}

}  // namespace megatron
