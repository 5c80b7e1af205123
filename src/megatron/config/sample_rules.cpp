// Rules on what samples are made of: fill-in-the-middle, packed documents and conversations.
#include "megatron/config/data_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {
namespace {

using S = const Settings&;
using Parts = UserError::Parts;

/// Returns the first flag of fill-in-the-middle that is not at its default; "" if there is none.
std::string first_fim_flag(const FimConfig& fim) {
  const FimConfig defaults;
  if (fim.fim_rate != defaults.fim_rate) return "--fim-rate";
  if (fim.fim_spm_rate != defaults.fim_spm_rate) return "--fim-spm-rate";
  if (!fim.fim_split_sample.empty()) return "--fim-split-sample";
  if (fim.fim_fragment_rate) return "--fim-fragment-rate";
  if (!fim.fim_no_prefix.empty()) return "--fim-no-prefix";
  if (fim.fim_prefix_token != defaults.fim_prefix_token) return "--fim-prefix-token";
  if (fim.fim_middle_token != defaults.fim_middle_token) return "--fim-middle-token";
  if (fim.fim_suffix_token != defaults.fim_suffix_token) return "--fim-suffix-token";
  if (fim.fim_pad_token != defaults.fim_pad_token) return "--fim-pad-token";
  return fim.fim_eod_token != defaults.fim_eod_token ? "--fim-eod-token" : "";
}

bool resets_documents(const DataConfig& data) {
  return data.reset_attention_mask || data.reset_position_ids ||
         data.dataloader_inter_document_masking;
}

bool packs_documents(const DataConfig& data) { return data.document_packing_strategy != "wrapped"; }

}  // namespace

const std::vector<Rule>& fim_rules() {
  static const std::vector<Rule> rules = {
      {{"fim_data", "fim_rate", "fim_spm_rate", "fim_split_sample", "fim_fragment_rate"},
       [](S s) { return !s.data->fim.fim_data && !first_fim_flag(s.data->fim).empty(); },
       [](S s) {
         return Parts{first_fim_flag(s.data->fim), "has an effect only with --fim-data",
                      "add --fim-data, or leave it out"};
       }},
      {{"fim_split_sample", "fim_fragment_rate"},
       [](S s) {
         return s.data->fim.fim_split_sample.empty() == s.data->fim.fim_fragment_rate.has_value();
       },
       [](S s) {
         return s.data->fim.fim_split_sample.empty()
                    ? Parts{"--fim-fragment-rate", "has an effect only with --fim-split-sample",
                            "add --fim-split-sample TOKEN, or leave it out"}
                    : Parts{"--fim-split-sample", "needs the share of fragments to reorder",
                            "add --fim-fragment-rate X"};
       }},
      {{"fim_data", "sft"},
       [](S s) { return s.data->fim.fim_data && s.data->sft; },
       [](S) {
         return Parts{"--fim-data", "does not go with the conversations of --sft",
                      "leave one of them out"};
       }},
      {{"fim_data", "dataloader_inter_document_masking"},
       [](S s) { return s.data->fim.fim_data && s.data->dataloader_inter_document_masking; },
       [](S) {
         return Parts{"--dataloader-inter-document-masking",
                      "needs the lengths of documents, which --fim-data changes",
                      "use --reset-attention-mask and --reset-position-ids, which follow the "
                      "end-of-document tokens"};
       }},
  };
  return rules;
}

const std::vector<Rule>& document_packing_rules() {
  static const std::vector<Rule> rules = {
      {{"document_packing_strategy", "sft"},
       [](S s) { return s.data->sft && packs_documents(*s.data); },
       [](S) {
         return Parts{"--document-packing-strategy", "has no effect with --sft",
                      "use --sft-packing-strategy"};
       }},
      {{"document_packing_strategy", "fim_data"},
       [](S s) { return s.data->fim.fim_data && packs_documents(*s.data); },
       [](S s) {
         return Parts{"--document-packing-strategy " + s.data->document_packing_strategy,
                      "needs the lengths of documents, which --fim-data changes",
                      "leave one of them out"};
       }},
  };
  return rules;
}

/// Apart, because `dataset show` prints samples without a model that attends.
const std::vector<Rule>& document_attention_rules() {
  static const std::vector<Rule> rules = {
      {{"document_packing_strategy", "dataloader_inter_document_masking"},
       [](S s) {
         return packs_documents(*s.data) && !s.data->sft && !s.data->fim.fim_data &&
                !s.data->dataloader_inter_document_masking;
       },
       [](S s) {
         return Parts{"--document-packing-strategy " + s.data->document_packing_strategy,
                      "would let documents that were put together attend to each other",
                      "add --dataloader-inter-document-masking"};
       }},
  };
  return rules;
}

const std::vector<Rule>& sft_rules() {
  static const std::vector<Rule> rules = {
      {{"sft", "sft_tokenizer_prompt_format"},
       [](S s) {
         return !s.data->sft &&
                s.data->sft_tokenizer_prompt_format != DataConfig{}.sft_tokenizer_prompt_format;
       },
       [](S) {
         return Parts{"--sft-tokenizer-prompt-format", "has an effect only with --sft",
                      "add --sft, or leave it out"};
       }},
      {{"sft", "sft_packing_strategy"},
       [](S s) { return !s.data->sft && s.data->sft_packing_strategy != "line"; },
       [](S) {
         return Parts{"--sft-packing-strategy", "has an effect only with --sft",
                      "add --sft, or leave it out"};
       }},
      {{"sft", "chat_template"},
       [](S s) { return !s.data->sft && !s.tokenizer->chat_template.empty(); },
       [](S) {
         return Parts{"--chat-template", "has an effect only with --sft",
                      "add --sft, or leave it out"};
       }},
      {{"sft", "tokenizer_type"},
       [](S s) {
         const std::string& type = s.tokenizer->tokenizer_type;
         return s.data->sft && !type.empty() && type != "SFTTokenizer" &&
                type != "HuggingFaceTokenizer" && type != "MultimodalTokenizer";
       },
       [](S s) {
         return Parts{"--tokenizer-type " + s.tokenizer->tokenizer_type,
                      "cannot format the conversations of --sft",
                      "use SFTTokenizer with a tokenizer.json as --tokenizer-model"};
       }},
      {{"sft", "reset_attention_mask", "reset_position_ids", "dataloader_inter_document_masking"},
       [](S s) { return s.data->sft && resets_documents(*s.data); },
       [](S s) {
         return Parts{s.data->reset_attention_mask ? "--reset-attention-mask"
                      : s.data->reset_position_ids ? "--reset-position-ids"
                                                   : "--dataloader-inter-document-masking",
                      "has no effect with --sft, where attention and positions restart with each "
                      "conversation",
                      "leave it out"};
       }},
      {{"sft", "eod_mask_loss"},
       [](S s) { return s.data->sft && s.data->eod_mask_loss; },
       [](S) {
         return Parts{"--eod-mask-loss", "has no effect with --sft, whose loss is that of answers",
                      "leave it out"};
       }},
  };
  return rules;
}

}  // namespace megatron
