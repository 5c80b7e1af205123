// The names of the model families. The command line needs them without LibTorch;
// models/model_family.cpp has the families themselves.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/field_table.h"

namespace megatron {

/// The families, as `megatron pretrain <name>` takes them.
inline constexpr std::array<std::string_view, 4> kModelFamilyNames{"gpt", "hybrid", "bert", "t5"};

/// Declares the word that names the family, in a table whose options have the member `model`.
template <class T>
FieldBuilder add_model_family(FieldTable<T>& t, std::string help) {
  return t.field("model", &T::model, std::move(help))
      .positional()
      .decides_flags()
      .choices({kModelFamilyNames.begin(), kModelFamilyNames.end()})
      .otherwise(
          "models of other families, such as vlm, are not in this version; ict, realm and retro "
          "were removed from Megatron-LM; "
          "hybrid trains layers in the order of a pattern, as pretrain_mamba.py does");
}

/// Returns the fields with other families than these, for a program that adds some.
inline FieldSet with_families(FieldSet fields, const std::vector<std::string>& names) {
  const auto model = std::ranges::find(fields.fields, "model", &Field::name);
  model->choices = names;
  return fields;
}

}  // namespace megatron
