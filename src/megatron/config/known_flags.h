// Megatron-LM's flags that have no member in settings.h. They are accepted at a neutral value, and
// otherwise accepted with a note or refused with a reason.
#pragma once

#include <span>
#include <string_view>

#include "megatron/config/field.h"

namespace megatron {

/// Flags that are treated alike, in the notation that known_flags_data.cpp describes.
struct KnownFlags {
  enum class Treatment { accepted, refused };
  Treatment treatment;
  std::string_view reason;
  std::string_view fix;
  std::string_view words;
};

/// Returns the table of all known flags.
std::span<const KnownFlags> known_flags();

/// Returns the flags of one entry as hidden fields.
std::vector<Field> known_flag_fields(const KnownFlags& flags);

/// Returns the flags of the inference engine (engine_settings.h, speculative_config.h) as hidden
/// fields that set nothing, for commands that do not have them. Those with the same note are
/// adjacent.
std::vector<Field> engine_flag_fields();

/// Returns the whole table and engine_flag_fields() as hidden fields that set nothing, for
/// FieldTable::add_field().
std::vector<Field> known_flag_fields();

}  // namespace megatron
