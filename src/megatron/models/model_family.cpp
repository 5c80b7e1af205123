#include "megatron/models/model_family.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/config/model_families.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {
namespace {

/// The table is explicit, because the linker drops objects of a static library that register
/// themselves but are not referenced.
constexpr std::array<ModelFamily, kModelFamilyNames.size()> kFamilies{
    ModelFamily{.name = "gpt",
                .title = "GPT",
                .make = make_gpt_model,
                .dimensions = model_dimensions,
                .hf_model_types = kHfModelTypes},
};

static_assert(std::ranges::equal(kFamilies, kModelFamilyNames, {}, &ModelFamily::name),
              "kModelFamilyNames must list the families of this table, in its order");

}  // namespace

std::span<const ModelFamily> model_families() { return kFamilies; }

const ModelFamily& find_model_family(std::string_view name) {
  const auto found = std::ranges::find(kFamilies, name, &ModelFamily::name);
  if (found != kFamilies.end()) return *found;
  throw UserError("model: must be one of " + joined_text(kModelFamilyNames) + ", got '" +
                  std::string(name) + "'");
}

const ModelFamily& family_of_model_type(std::string_view model_type) {
  if (model_type.empty()) return kFamilies.front();
  std::vector<std::string_view> known;
  for (const ModelFamily& family : kFamilies) {
    if (std::ranges::count(family.hf_model_types, model_type) > 0) return family;
    known.insert(known.end(), family.hf_model_types.begin(), family.hf_model_types.end());
  }
  throw UserError({"model_type '" + std::string(model_type) + "' is not supported", "",
                   "supported: " + joined_text(known)});
}

}  // namespace megatron
