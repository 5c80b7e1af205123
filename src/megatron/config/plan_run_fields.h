// The flags of a run that `megatron plan` takes for a model.
#pragma once

#include "megatron/config/field_table.h"
#include "megatron/config/model_families.h"
#include "megatron/config/run_flags.h"

namespace megatron {

/// Adds the flags to a table whose options have the members `model`, the type of the model, and
/// `run`, the settings.
template <class T>
void add_plan_run_fields(FieldTable<T>& t) {
  add_model_family(t, "type of the model, as for pretrain").hidden();
  include_run_flags(t, &T::run, {});
}

}  // namespace megatron
