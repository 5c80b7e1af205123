#include "megatron/checkpoint/gguf/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/models/hf/hf_family.h"

namespace megatron {
namespace {

/// Traits of architectures.
constexpr unsigned kExperts = 1,  // of several rows with one name, that of files with experts
    kPairs = 2,                   // channels that rotate together are neighbours
    kOutputNorms = 4,             // the norm after attention has another name than in most
    kNormsAroundOne = 8,          // and not around zero, as the family's
    kQueryScalar = 16;            // scores are scaled by a setting that files do not have

/// An architecture of llama.cpp, and the Hugging Face family that computes the same.
struct GgufArchitecture {
  std::string_view name;        ///< general.architecture
  std::string_view model_type;  ///< of the family
  unsigned traits = 0;
  const char* keys = "";  ///< beyond kKeys

  bool has(unsigned trait) const { return (traits & trait) != 0; }
};
constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "mixtral", kExperts | kPairs,
     "/num_local_experts expert_count  /num_experts_per_tok expert_used_count"},
    {"llama", "llama", kPairs},
    {"llama", "mistral", kPairs},
    {"arcee", "arcee", kPairs},
    {"smollm3", "smollm3", kPairs},
    {"granite", "granite", kPairs,
     "/attention_multiplier attention.scale  /embedding_multiplier embedding_scale "
     "/residual_multiplier residual_scale  /logits_scaling logit_scale"},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen2moe", "qwen2_moe", kExperts,
     "/num_experts expert_count  /num_experts_per_tok expert_used_count "
     "/moe_intermediate_size expert_feed_forward_length "
     "/shared_expert_intermediate_size expert_shared_feed_forward_length"},
    {"qwen3moe", "qwen3_moe", kExperts,
     "/num_experts expert_count  /num_experts_per_tok expert_used_count "
     "/moe_intermediate_size expert_feed_forward_length"},
    {"olmo2", "olmo2", kOutputNorms},
    {"seed_oss", "seed_oss", kOutputNorms},
    {"gemma", "gemma", kNormsAroundOne},
    {"gemma2", "gemma2", kOutputNorms | kNormsAroundOne | kQueryScalar,
     "/sliding_window attention.sliding_window  /attn_logit_softcapping attn_logit_softcapping "
     "/final_logit_softcapping final_logit_softcapping"},
    {"gemma3", "gemma3_text", kOutputNorms | kNormsAroundOne | kQueryScalar,
     "/sliding_window attention.sliding_window  /rope_local_base_freq rope.freq_base_swa"}};

/// Keys of config.json, as JSON pointers, each with that of the metadata, before which the name of
/// the architecture stands.
constexpr const char* kKeys = R"(
/max_position_embeddings context_length  /hidden_size embedding_length
/num_hidden_layers block_count  /intermediate_size feed_forward_length
/num_attention_heads attention.head_count  /num_key_value_heads attention.head_count_kv
/head_dim attention.key_length  /rms_norm_eps attention.layer_norm_rms_epsilon
/rope_theta rope.freq_base  /rope_scaling/factor rope.scaling.factor
/rope_scaling/original_max_position_embeddings rope.scaling.original_context_length
/rope_scaling/beta_fast rope.scaling.yarn_beta_fast
/rope_scaling/beta_slow rope.scaling.yarn_beta_slow
/bos_token_id tokenizer.ggml.bos_token_id  /eos_token_id tokenizer.ggml.eos_token_id
/pad_token_id tokenizer.ggml.padding_token_id)";

/// Names of the family's tensors, each with the file's, without "weight" or "bias"; those of layers
/// also without what all begin with.
constexpr const char* kNames = R"(
model.embed_tokens token_embd  model.norm output_norm  lm_head output  input_layernorm attn_norm
self_attn.q_proj attn_q  self_attn.k_proj attn_k  self_attn.v_proj attn_v
self_attn.o_proj attn_output  self_attn.q_norm attn_q_norm  self_attn.k_norm attn_k_norm
post_attention_layernorm ffn_norm  pre_feedforward_layernorm ffn_norm
post_feedforward_layernorm post_ffw_norm
mlp.gate_proj ffn_gate  mlp.up_proj ffn_up  mlp.down_proj ffn_down  mlp.gate ffn_gate_inp
mlp.experts.{e}.gate_proj ffn_gate_exps  mlp.experts.{e}.up_proj ffn_up_exps
mlp.experts.{e}.down_proj ffn_down_exps  mlp.shared_expert_gate ffn_gate_inp_shexp
mlp.shared_expert.gate_proj ffn_gate_shexp  mlp.shared_expert.up_proj ffn_up_shexp
mlp.shared_expert.down_proj ffn_down_shexp
block_sparse_moe.gate ffn_gate_inp  block_sparse_moe.experts.{e}.w1 ffn_gate_exps
block_sparse_moe.experts.{e}.w3 ffn_up_exps  block_sparse_moe.experts.{e}.w2 ffn_down_exps)";

std::string key_of(const GgufArchitecture& architecture, const std::string& key) {
  return key.starts_with("tokenizer.") ? key : std::string(architecture.name) + "." + key;
}

/// Returns the pointers into config.json and the keys of the metadata of an architecture.
std::vector<std::pair<Json::json_pointer, std::string>> keys_of(
    const GgufArchitecture& architecture) {
  const std::vector<std::string> words = split_words(std::string(kKeys) + " " + architecture.keys);
  std::vector<std::pair<Json::json_pointer, std::string>> keys;
  for (std::size_t i = 0; i < words.size(); i += 2)
    keys.emplace_back(words[i], key_of(architecture, words[i + 1]));
  return keys;
}

std::int64_t integer_of(const Json& config, const char* key) {
  return config.at(key).get<std::int64_t>();
}

/// Adds the name that a row of the family has in a layer with this ending, if any.
void add_name(const GgufArchitecture& architecture, const TensorRow& row, std::int64_t layer,
              const std::string& ending, const Json& config, std::vector<GgufName>& names) {
  if (!row.theirs.ends_with(".{w}") && !row.theirs.ends_with(ending)) return;
  constexpr std::string_view kLayer = "model.layers.{i}.";
  const bool is_in_layer = row.theirs.starts_with(kLayer);
  const std::size_t begin = is_in_layer ? kLayer.size() : 0, end = row.theirs.rfind('.');
  const std::string stem = row.theirs.substr(begin, std::max(begin, end) - begin);
  static const std::vector<std::string> known = split_words(kNames);
  std::size_t i = 0;
  while (i < known.size() && known[i] != stem) i += 2;
  if (i == known.size() || (!is_in_layer && layer > 0)) return;
  const bool has_other_name = stem == "post_attention_layernorm" && architecture.has(kOutputNorms);
  const std::string number = std::to_string(layer), query = "self_attn.q_proj",
                    theirs = has_other_name ? "post_attention_norm" : known[i + 1];
  GgufName name{.ours = (is_in_layer ? "model.layers." + number + "." : "") + stem + ending,
                .theirs = (is_in_layer ? "blk." + number + "." : "") + theirs + ending,
                .is_row = theirs == "ffn_gate_inp_shexp"};
  if (architecture.has(kNormsAroundOne) && theirs.ends_with("norm")) name.form.added = 1;
  if (architecture.has(kPairs) && (stem == query || stem == "self_attn.k_proj"))
    name.form.rotary_heads =
        integer_of(config, stem == query ? "num_attention_heads" : "num_key_value_heads");
  names.push_back(std::move(name));
}

std::int64_t head_dim_of(const Json& config) {
  const Json given = config.value("head_dim", Json());
  return given.is_number()
             ? given.get<std::int64_t>()
             : integer_of(config, "hidden_size") /
                   std::max<std::int64_t>(1, integer_of(config, "num_attention_heads"));
}

/// Returns the numbers by which Llama 3 divides the frequencies of its rotary embedding.
std::vector<float> llama3_factors(const Json& config, const Json& scaling) {
  const auto number = [&](const char* key) { return scaling.at(key).get<double>(); };
  const double base = config.at("rope_theta").get<double>(), factor = number("factor"),
               low = number("low_freq_factor"), high = number("high_freq_factor"),
               length = number("original_max_position_embeddings");
  const std::int64_t dim = head_dim_of(config);
  std::vector<float> factors;
  for (std::int64_t i = 0; i < dim; i += 2) {
    const double turns = length *
                         std::pow(base, -static_cast<double>(i) / static_cast<double>(dim)) /
                         (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return factors;
}

/// Returns the rope_scaling that gives these factors. Files do not have its settings, of which all
/// models of Llama have the same but for factor and length.
Json scaling_of(const std::vector<float>& factors, const Json& config, const std::string& source) {
  std::vector<std::int64_t> lengths{8192};  // the usual one first: others can give the same factors
  for (int bit = 20; bit >= 3; --bit) lengths.push_back(std::int64_t{1} << bit);
  for (const std::int64_t length : lengths) {
    const Json scaling = {{"rope_type", "llama3"},
                          {"factor", std::ranges::max(factors)},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", length}};
    if (std::ranges::equal(llama3_factors(config, scaling), factors,
                           [](float a, float b) { return std::abs(a - b) <= 1e-4F * std::abs(b); }))
      return scaling;
  }
  throw UserError({source + ": tensor '" + std::string(kGgufRotaryFactors) + "'",
                   "its factors are not those of Llama 3",
                   "load the Hugging Face folder of the model"});
}

/// Sets what is no key of the metadata: llama.cpp knows it from architecture and tensors.
void set_implied_keys(const GgufArchitecture& architecture, const GgufFile& file, Json& config,
                      const std::string& source) {
  const auto find = [&](std::string_view name) {
    return std::ranges::find(file.tensors, name, &GgufTensor::name);
  };
  const auto has = [&](std::string_view name) { return find(name) != file.tensors.end(); };
  const auto embedding = find("token_embd.weight");
  if (embedding == file.tensors.end() || embedding->shape.size() != 2)
    throw UserError({source + ": there is no matrix 'token_embd.weight'", "",
                     "give the first file of a whole language model"});
  config["vocab_size"] = embedding->shape.front();
  config["tie_word_embeddings"] = !has("output.weight");
  if (!architecture.name.starts_with("qwen2")) {  // whose biases are no setting
    config["attention_bias"] = has("blk.0.attn_q.bias");
    config["attention_out_bias"] = has("blk.0.attn_output.bias");
    config["mlp_bias"] = has("blk.0.ffn_up.bias");
  }
  if (architecture.name.ends_with("moe"))
    config["norm_topk_prob"] = architecture.name == "qwen3moe";
  // llama.cpp scales the scores of the largest models of Gemma 2 and 3 by another size.
  if (architecture.has(kQueryScalar))
    config["query_pre_attn_scalar"] =
        config["num_hidden_layers"] == (architecture.name == "gemma2" ? 46 : 62)
            ? integer_of(config, "hidden_size") / integer_of(config, "num_attention_heads")
            : head_dim_of(config);
}

/// Returns the row of a file.
const GgufArchitecture& architecture_of(const JsonCursor& metadata) {
  const std::string name = metadata["general.architecture"].text();
  const bool has_experts = metadata->value(name + ".expert_count", Json(0)) != 0;
  std::vector<std::string> known;
  for (const GgufArchitecture& row : kArchitectures) {
    if (row.name == name && row.has(kExperts) == has_experts) return row;
    if (known.empty() || known.back() != row.name) known.emplace_back(row.name);
  }
  throw UserError({metadata.name() + ": general.architecture '" + name + "'" +
                       (has_experts ? " with experts" : "") + " is not supported",
                   "", "supported: " + joined_text(known, ", ")});
}

/// Returns the row that files of the model get.
const GgufArchitecture& architecture_for(const Json& config) {
  const std::string model_type = config.at("model_type").get<std::string>();
  const auto found = std::ranges::find(kArchitectures, model_type, &GgufArchitecture::model_type);
  if (found != std::end(kArchitectures)) return *found;
  throw UserError({"GGUF files of model_type '" + model_type + "' are not written", "",
                   "write --format hf, which llama.cpp's converter may convert"});
}

}  // namespace

Json config_of_gguf(const GgufFile& file, const std::vector<float>& rotary_factors,
                    const std::string& source) {
  const JsonCursor metadata(*file.metadata, source);
  const GgufArchitecture& architecture = architecture_of(metadata);
  const auto value = [&](const char* key) { return metadata.find(key_of(architecture, key)); };
  for (const char* key : {"embedding_length", "block_count", "attention.head_count"})
    if (const JsonCursor size = metadata[key_of(architecture, key)]; size.integer() < 1)
      throw UserError({size.name() + " must be at least 1", size->dump(), ""});
  metadata[key_of(architecture, "attention.layer_norm_rms_epsilon")].number();
  Json config = {{"model_type", architecture.model_type},
                 {"architectures", {find_hf_family(architecture.model_type)->architecture}},
                 {"rope_theta", 10000.0}};
  for (const auto& [ours, theirs] : keys_of(architecture))
    if (const auto given = metadata.find(theirs))
      config[ours] = (*given)->is_number_float() ? Json(given->number()) : Json(given->integer());
  config.emplace("num_key_value_heads", config["num_attention_heads"]);
  set_implied_keys(architecture, file, config, source);
  const std::int64_t head_dim = head_dim_of(config);
  for (const char* key : {"rope.dimension_count", "attention.value_length"})
    if (const auto size = value(key); size && size->integer() != head_dim)
      throw UserError({size->name() + " must be the size of a head, " + std::to_string(head_dim),
                       std::to_string(size->integer()), "no other size is supported"});
  if (const auto type = value("rope.scaling.type"); type && type->text() != "none")
    config["rope_scaling"]["rope_type"] = type->text();
  else
    config.erase("rope_scaling");
  if (std::ranges::any_of(rotary_factors, [](float factor) { return factor != 1; }))
    config["rope_scaling"] = scaling_of(rotary_factors, config, source);
  return config;
}

Json gguf_metadata(const Json& config, std::vector<float>& rotary_factors) {
  const GgufArchitecture& architecture = architecture_for(config);
  Json metadata = {{"general.architecture", architecture.name}}, written = config;
  const std::string type = config.value(Json::json_pointer("/rope_scaling/rope_type"), "");
  if (type == "llama3" && architecture.has(kPairs))
    rotary_factors = llama3_factors(config, config.at("rope_scaling"));
  else if (!type.empty())
    metadata[key_of(architecture, "rope.scaling.type")] = type;
  if (type.empty() || !rotary_factors.empty()) written.erase("rope_scaling");
  for (const auto& [ours, theirs] : keys_of(architecture)) {
    Json given = written.value(ours, Json());
    if (given.is_array() && !given.empty()) given = Json(given.front());  // ids of several tokens
    if (given.is_number_float() || (given.is_number() && given >= 0))
      metadata[theirs] = given.is_number_float() ? given : Json(given.get<std::uint64_t>());
  }
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"})
    metadata[key_of(architecture, key)] = static_cast<std::uint64_t>(head_dim_of(config));
  metadata[key_of(architecture, "vocab_size")] = config.at("vocab_size").get<std::uint64_t>();
  return metadata;
}

std::vector<std::string> GgufName::parts(const Json& config) const {
  const std::size_t place = ours.find("{e}");
  if (place == ours.npos) return {ours};
  const auto experts =
      config.value("num_experts", config.value("num_local_experts", std::int64_t{0}));
  std::vector<std::string> names;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    names.push_back(std::string(ours).replace(place, 3, std::to_string(expert)));
  return names;
}

std::vector<GgufName> gguf_names(const Json& config) {
  const GgufArchitecture& architecture = architecture_for(config);
  std::vector<GgufName> names;
  for (std::int64_t layer = 0; layer < integer_of(config, "num_hidden_layers"); ++layer)
    for (const char* ending : {".weight", ".bias"})  // so that parts of a weight follow each other
      for (const TensorRow& row : find_hf_family(architecture.model_type)->tensors)
        add_name(architecture, row, layer, ending, config, names);
  return names;
}

}  // namespace megatron
