// Encoders with a head for masked tokens: BERT, RoBERTa, and BERT as Megatron-LM trains it.
#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

KeyRow token_types() {
  const auto read = [](const ConfigReader& config, HfConfig& result) {
    const std::int64_t types = config.integer("type_vocab_size", 2);
    if (types < 1 || types > kMaxSize)
      config.unsupported("type_vocab_size", "train with --num-tokentypes 1 or more");
    result.model.num_tokentypes = types;
  };
  return {"type_vocab_size", read,
          [](const T& model, Json& json) { json["type_vocab_size"] = model.token_types(); }};
}

/// The class of transformers says which heads a model has: `name`ForPreTraining, if the family has
/// BERT's heads, ForMaskedLM, for labelled texts ForSequenceClassification and, if the family has
/// BERT's heads, ForMultipleChoice or, without heads, Model. id2label has the classes, which are
/// two where it is absent.
KeyRow heads(const std::string& name, bool has_bert_heads = true) {
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    const Json* classes = config.find("architectures");
    const std::string text = classes == nullptr ? name : compact_json(*classes);
    result.model.bert_lm_head = text.find(name + "Model") == std::string::npos;
    result.model.bert_binary_head =
        has_bert_heads && (classes == nullptr || text.find("ForPreTraining") != std::string::npos);
    const Json* labels = config.find("id2label");
    if (text.find("ForMultipleChoice") != std::string::npos) {
      if (!has_bert_heads) config.unsupported("architectures", "choices are ranked by BERT alone");
      result.model.num_classes = 1;
    }
    if (text.find("ForSequenceClassification") == std::string::npos) return;
    result.model.num_classes = labels == nullptr ? 2 : std::ssize(*labels);
    if (result.model.num_classes < 2) config.unsupported("id2label", "name two classes or more");
  };
  return {"architectures", read, [=](const T& model, Json& json) {
            const std::int64_t count = model.num_classes;
            json["architectures"] =
                Json::array({name + (count > 1                      ? "ForSequenceClassification"
                                     : count == 1 && has_bert_heads ? "ForMultipleChoice"
                                     : model.bert_binary_head       ? "ForPreTraining"
                                     : model.bert_lm_head           ? "ForMaskedLM"
                                                                    : "Model")});
            if (count < 2 || std::ssize(json["id2label"]) == count) return;
            json["id2label"] = json["label2id"] = Json::object();
            for (std::int64_t i = 0; i < count; ++i) {
              const std::string label = "LABEL_" + std::to_string(i);
              json["id2label"][std::to_string(i)] = label;
              json["label2id"][label] = i;
            }
          }};
}

void read_heads(const ConfigReader& config, HfConfig& result) {
  result.model.kv_channels = even_head_dim(config, "hidden_size", "num_attention_heads");
}

/// The positions begin behind that of padding.
void read_first_position(const ConfigReader& config, HfConfig& result) {
  result.model.position_offset = config.integer("pad_token_id", 1) + 1;
}

void write_first_position(const T& model, Json& json) {
  json["pad_token_id"] = model.position_offset - 1;
}

/// An encoder, whose tensors of the network are below `prefix`.
HfFamily encoder(const std::string& model_type, const std::string& architecture,
                 const std::string& prefix) {
  HfFamily family{.model_type = model_type,
                  .architecture = architecture,
                  .keys = {{"vocab_size", &T::vocab_size, {.most = kMaxSize}},
                           {"initializer_range", &T::init_method_std},
                           constant("tie_word_embeddings", true)},
                  .prefix = prefix,
                  .buffers = {"embeddings.position_ids", "embeddings.token_type_ids",
                              "pooler.dense.weight", "pooler.dense.bias"},
                  .needs_even_heads = true,
                  .network = "bert"};
  family.defaults.num_query_groups = 0;
  family.defaults.norm_epsilon = 1e-12;
  family.add_keys({{"num_hidden_layers", &T::num_layers, {.most = kMostLayers}},
                   {"hidden_size", &T::hidden_size},
                   {"num_attention_heads", &T::num_attention_heads},
                   {"", read_heads},
                   {"intermediate_size", &T::ffn_hidden_size},
                   {"max_position_embeddings", &T::max_position_embeddings, {.most = kMaxSize}},
                   token_types(),
                   {"layer_norm_eps", &T::norm_epsilon, kPositive},
                   {"hidden_dropout_prob", &T::hidden_dropout, {.range = kFraction}},
                   {"attention_probs_dropout_prob", &T::attention_dropout, {.range = kFraction}},
                   constant("hidden_act", "gelu"),
                   constant("position_embedding_type", "absolute"),
                   constant("is_decoder", false)});
  const std::string ours = "embedding.", theirs = prefix + "embeddings.";
  family.add_tensors(
      {{ours + "word_embeddings.weight", theirs + "word_embeddings.weight"},
       {ours + "position_embeddings.weight", theirs + "position_embeddings.weight"},
       {ours + "tokentype_embeddings.weight", theirs + "token_type_embeddings.weight"},
       {ours + "layernorm.{w}", theirs + "LayerNorm.{w}"}});
  family.add_layer_tensors({{"self_attention.linear_qkv.{w}", "attention.self.query.{w}", kQuery},
                            {"self_attention.linear_qkv.{w}", "attention.self.key.{w}", kKey},
                            {"self_attention.linear_qkv.{w}", "attention.self.value.{w}", kValue},
                            {"self_attention.linear_proj.{w}", "attention.output.dense.{w}"},
                            {"mlp.linear_fc1.{w}", "intermediate.dense.{w}"},
                            {"mlp.linear_fc2.{w}", "output.dense.{w}"}},
                           prefix + "encoder.layer.{i}.", "encoder.layers.{i}.");
  return family;
}

/// Adds the head of masked tokens, whose output layer has the weight of the embeddings, and its
/// bias under two names.
void add_masked_token_head(HfFamily& family, const std::string& transform, const std::string& norm,
                           const std::string& head) {
  family.output_layer = head + ".decoder.weight";
  family.add_tensors(
      {{"lm_head.dense.{w}", transform + ".dense.{w}"},
       {"lm_head.layer_norm.{w}", transform + norm + ".{w}"},
       {"output_layer.bias", head + ".bias"},
       {.ours = "output_layer.bias", .theirs = head + ".decoder.bias", .is_copy = true}});
}

void add_heads(HfFamily& family, const std::string& name) {
  family.keys.push_back(heads(name));
  add_masked_token_head(family, "cls.predictions.transform", ".LayerNorm", "cls.predictions");
  family.add_tensors({{"binary_head.{w}", "cls.seq_relationship.{w}"},
                      {"classification_head.{w}", "classifier.{w}"},
                      {"multichoice_head.{w}", "classifier.{w}"},
                      {"pooler.dense.{w}", family.prefix + "pooler.dense.{w}"}});
}

/// Norms follow the embeddings and the residual additions.
void norm_sums(HfFamily& family) {
  family.defaults.embedding_norm = true;
  family.defaults.norm_placement = NormPlacement::post;
  family.add_layer_tensors({{"post_self_attn_layernorm.{w}", "attention.output.LayerNorm.{w}"},
                            {"post_mlp_layernorm.{w}", "output.LayerNorm.{w}"}},
                           family.prefix + "encoder.layer.{i}.", "encoder.layers.{i}.");
}

}  // namespace

HfFamily bert() {
  HfFamily family = encoder("bert", "BertForPreTraining", "bert.");
  norm_sums(family);
  add_heads(family, "Bert");
  return family;
}

HfFamily megatron_bert() {
  HfFamily family = encoder("megatron-bert", "MegatronBertForPreTraining", "bert.");
  family.add_tensors({{"encoder.final_layernorm.{w}", "bert.encoder.ln.{w}"}});
  family.add_layer_tensors({{"self_attention.linear_qkv.layer_norm_{w}", "attention.ln.{w}"},
                            {"mlp.linear_fc1.layer_norm_{w}", "ln.{w}"}},
                           "bert.encoder.layer.{i}.", "encoder.layers.{i}.");
  add_heads(family, "MegatronBert");
  return family;
}

HfFamily roberta() {
  HfFamily family = encoder("roberta", "RobertaForMaskedLM", "roberta.");
  norm_sums(family);
  family.keys.push_back(heads("Roberta", /*has_bert_heads=*/false));
  family.keys.emplace_back("pad_token_id", read_first_position, write_first_position);
  add_masked_token_head(family, "lm_head", ".layer_norm", "lm_head");
  family.add_tensors({{"pooler.dense.{w}", "classifier.dense.{w}"},
                      {"classification_head.{w}", "classifier.out_proj.{w}"}});
  return family;
}

}  // namespace megatron::families
