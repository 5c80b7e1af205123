// Megatron-LM's flags that have no member in settings.h. They are accepted at a neutral value, and
// otherwise accepted with a note or refused with a reason.
#pragma once

#include <span>
#include <string_view>

#include "megatron/config/field.h"

namespace megatron {

/// Flags that are treated alike, in the notation that known_flags_data.cpp describes.
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

/// Returns the table of all known flags.
std::span<const KnownFlags> known_flags();

/// Returns the flags of one entry as hidden fields, for a command that trains or, if
/// `runs_inference`, for one that runs a trained model.
std::vector<Field> known_flag_fields(const KnownFlags& flags, bool runs_inference = false);

/// Returns the whole table as hidden fields that set nothing, for FieldTable::add_field().
std::vector<Field> known_flag_fields(bool runs_inference = false);

}  // namespace megatron
