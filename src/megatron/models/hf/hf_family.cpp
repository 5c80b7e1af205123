#include "megatron/models/hf/hf_family.h"

#include <algorithm>

#include "megatron/models/hf/families/families.h"

namespace megatron {

const std::vector<HfFamily>& hf_families() {
  static const std::vector<HfFamily> all{families::gpt2(),
                                         families::llama(),
                                         families::qwen2(),
                                         families::qwen3(),
                                         families::mistral(),
                                         families::mixtral(),
                                         families::qwen2_moe(),
                                         families::qwen3_moe(),
                                         families::olmoe(),
                                         families::starcoder2(),
                                         families::deepseek_v2(),
                                         families::deepseek_v3(),
                                         families::kimi_k2(),
                                         families::gemma(),
                                         families::gemma2(),
                                         families::gemma3_text(),
                                         families::vaultgemma(),
                                         families::phi3(),
                                         families::seed_oss(),
                                         families::hunyuan_v1_dense(),
                                         families::smollm3(),
                                         families::arcee(),
                                         families::olmo2(),
                                         families::olmo3(),
                                         families::exaone4(),
                                         families::gpt_oss(),
                                         families::llama4_text(),
                                         families::ministral(),
                                         families::ministral3(),
                                         families::glm(),
                                         families::glm4(),
                                         families::glm4_moe(),
                                         families::solar_open(),
                                         families::dots1(),
                                         families::minimax_m2(),
                                         families::ernie4_5(),
                                         families::ernie4_5_moe(),
                                         families::flex_olmo(),
                                         families::hunyuan_v1_moe(),
                                         families::gpt_neox(),
                                         families::nemotron(),
                                         families::stablelm(),
                                         families::phi(),
                                         families::granite(),
                                         families::granitemoe(),
                                         families::cohere(),
                                         families::cohere2(),
                                         families::qwen3_next(),
                                         families::qwen3_5_text(),
                                         families::qwen3_5_moe_text(),
                                         families::olmo_hybrid(),
                                         families::mamba2(),
                                         families::nemotron_h(),
                                         families::bamba(),
                                         families::granitemoehybrid(),
                                         families::bert(),
                                         families::megatron_bert(),
                                         families::roberta(),
                                         families::t5(),
                                         families::mt5(),
                                         families::umt5()};
  return all;
}

const HfFamily* find_hf_family(std::string_view model_type) {
  const auto found = std::ranges::find(hf_families(), model_type, &HfFamily::model_type);
  return found == hf_families().end() ? nullptr : &*found;
}

void HfFamily::add_layer_tensors(TensorRows rows, const std::string& layer,
                                 const std::string& ours) {
  for (TensorRow& row : rows) {
    row.ours = ours + row.ours;
    row.theirs = layer + row.theirs;
  }
  add_tensors(rows);
}

}  // namespace megatron
