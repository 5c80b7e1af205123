// Megatron-LM's flags that have no member in settings.h: accepted at a neutral value, else accepted
// with a note or refused with the reason.
#pragma once

#include <span>
#include <string_view>

#include "megatron/config/field.h"

namespace megatron {

/// Flags of one treatment, written as one text (the notation stands in known_flags_data.cpp).
struct KnownFlags {
  enum class Treatment {
    accepted,
    refused,
    inference
  };  ///< inference: accepted by commands that run a model, refused by others
  Treatment treatment;
  std::string_view reason;
  std::string_view fix;
  std::string_view words;
};

/// The whole table.
std::span<const KnownFlags> known_flags();

/// The flags of one entry as hidden fields, for a command that trains or, with `runs_inference`,
/// for one that runs a trained model.
std::vector<Field> known_flag_fields(const KnownFlags& flags, bool runs_inference = false);

/// The whole table as hidden fields that set nothing, for FieldTable::add_field.
std::vector<Field> known_flag_fields(bool runs_inference = false);

}  // namespace megatron
