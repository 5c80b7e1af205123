#include "megatron/models/model_family.h"

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {

ModelFamilies::ModelFamilies() {
  using MakeModel = std::unique_ptr<LanguageModel>(const TransformerConfig&, const Rank&,
                                                   const MakeModelOptions&);
  add({.name = "gpt",
       .title = "GPT",
       .make = static_cast<MakeModel*>(make_gpt_model),
       .hf_model_types = kHfModelTypes});
}

void ModelFamilies::add(ModelFamily family) {
  MEGATRON_CHECK(std::ranges::count(families_, family.name, &ModelFamily::name) == 0,
                 "two model families are named ", family.name);
  families_.push_back(std::move(family));
}

std::vector<std::string> ModelFamilies::names() const {
  std::vector<std::string> names;
  for (const ModelFamily& family : families_) names.push_back(family.name);
  return names;
}

const ModelFamilies& library_families() {
  static const ModelFamilies families;
  return families;
}

const ModelFamily& find_model_family(std::string_view name, const ModelFamilies& families) {
  const auto found = std::ranges::find(families.all(), name, &ModelFamily::name);
  if (found != families.all().end()) return *found;
  throw UserError("model: must be one of " + joined_text(families.names()) + ", got '" +
                  std::string(name) + "'");
}

const ModelFamily& family_of_model_type(std::string_view model_type,
                                        const ModelFamilies& families) {
  if (model_type.empty()) return families.all().front();
  std::vector<std::string_view> known;
  for (const ModelFamily& family : families.all()) {
    if (std::ranges::count(family.hf_model_types, model_type) > 0) return family;
    known.insert(known.end(), family.hf_model_types.begin(), family.hf_model_types.end());
  }
  throw UserError({"model_type '" + std::string(model_type) + "' is not supported", "",
                   "supported: " + joined_text(known)});
}

}  // namespace megatron
