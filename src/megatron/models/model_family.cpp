#include "megatron/models/model_family.h"

#include <algorithm>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/config/data_config.h"
#include "megatron/models/bert_model.h"
#include "megatron/models/gpt_model.h"
#include "megatron/models/hf/hf_family.h"
#include "megatron/models/t5_model.h"

namespace megatron {

ModelFamilies::ModelFamilies() {
  add({.name = "gpt", .title = "GPT", .spec = gpt_spec});
  add({.name = "hybrid", .title = "Hybrid", .spec = hybrid_spec});
  add({.name = "bert",
       .title = "BERT",
       .spec = bert_spec,
       .sample_kind = SampleKind::bert,
       .add_fields = add_bert_fields});
  add({.name = "t5",
       .title = "T5",
       .spec = t5_spec,
       .sample_kind = SampleKind::t5,
       .add_fields = add_t5_fields});
}

std::unique_ptr<Model> ModelFamily::make(const TransformerConfig& config, const Rank& rank,
                                         const MakeModelOptions& options) const {
  return make_model(spec(config), config, rank, options);
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

const ModelFamily& family_of_model_type(std::string_view model_type) {
  if (model_type.empty()) return library_families().all().front();
  if (const HfFamily* family = find_hf_family(model_type))
    return find_model_family(family->network);
  throw UserError({"model_type '" + std::string(model_type) + "' is not supported", "",
                   "supported: " + joined_text(hf_families(), ", ", &HfFamily::model_type)});
}

}  // namespace megatron
