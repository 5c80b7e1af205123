// The flags of a training run on other commands, so that a launch script's flags can be given to
// them as they are.
#pragma once

#include <string>

#include "megatron/config/field_table.h"
#include "megatron/config/settings.h"

namespace megatron {

/// What another command says about the flags of a run that it does not use itself.
struct RunFlagNotes {
  std::string architecture;  ///< flags of the model's shape and forward function
  std::string others;
  bool runs_inference = false;  ///< flags of Megatron-LM's inference engine are accepted
};

/// The hidden fields that `own` lacks of `megatron pretrain`: settings, which are read into a
/// Settings at the object that the field is applied to, and known flags, which act as they do
/// there.
std::vector<Field> run_flag_fields(const FieldSet& own, const RunFlagNotes& notes);

/// Adds them to `table`, acting on `member`. Call after the table's own fields are declared.
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
