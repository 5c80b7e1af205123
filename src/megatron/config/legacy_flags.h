// Older flags that set other settings: --swiglu, --use-rotary-position-embeddings,
// --rotary-seq-len-interpolation-factor, ... Such a flag is stored and translated after everything
// is read, so that the order of the flags does not matter. The translation is that of Megatron-LM's
// validate_args and core_transformer_config_from_args, or what the release that had the flag did.
#pragma once

#include "megatron/config/command_line.h"
#include "megatron/config/field_table.h"

namespace megatron {

struct Settings;
struct TransformerConfig;

/// Returns the fields of LegacyFlags. Dumps show the value of the setting that each one sets.
const FieldTable<Settings>& legacy_table();

/// Sets the settings that the legacy flags stand for and records their origins in `parsed`. A
/// setting from a source of higher precedence keeps its value. Adds contradictions to `problems`.
/// Call it once, after all sources are read. What flags of rotary positions mean depends on the
/// model: with `loads_model` they wait for translate_rope_flags().
void translate_legacy_flags(Settings& settings, ParseResult& parsed, Problems& problems,
                            bool loads_model = false);

/// Translates the flags of rotary positions that waited, if there are any, for the architecture of
/// the loaded checkpoint; null: the run starts from scratch.
void translate_rope_flags(Settings& settings, ParseResult& parsed, Problems& problems,
                          const TransformerConfig* loaded);

}  // namespace megatron
