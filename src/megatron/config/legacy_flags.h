// Older spellings that set other settings: --swiglu, --use-rotary-position-embeddings,
// --rotary-seq-len-interpolation-factor, ... A flag of this kind is stored as it was given and
// translated after everything is read, so no flag's meaning depends on the order of the flags. The
// translation is that of Megatron-LM's validate_args and core_transformer_config_from_args.
#pragma once

#include "megatron/config/command_line.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings.h"

namespace megatron {

/// The fields of LegacyFlags. Each shows the state of the setting that it stands for.
const FieldTable<Settings>& legacy_table();

/// Sets what the legacy flags stand for and records it in `parsed` as given there, under the name
/// of the setting that it changes. A setting given by a source of higher precedence (a flag above a
/// file) keeps its value. Contradictions go to `problems`. Call once, after every source has been
/// read.
void translate_legacy_flags(Settings& settings, ParseResult& parsed, Problems& problems);

}  // namespace megatron
