#include "megatron/models/model_family.h"

#include <algorithm>
#include <array>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/config/model_families.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/hf/hf_family.h"

namespace megatron {
namespace {

/// The table is explicit, because the linker drops objects of a static library that register
/// themselves but are not referenced.
constexpr std::array<ModelFamily, kModelFamilyNames.size()> kFamilies{
    ModelFamily{
        .name = "gpt", .title = "GPT", .make = make_gpt_model, .dimensions = model_dimensions},
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
  if (const HfFamily* family = find_hf_family(hf_families(), model_type))
    return find_model_family(family->network);
  throw UserError({"model_type '" + std::string(model_type) + "' is not supported", "",
                   "supported: " + joined_text(hf_families(), ", ", &HfFamily::model_type)});
}

}  // namespace megatron
