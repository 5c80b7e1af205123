// Rules on what samples are made of: fill-in-the-middle, packed documents and conversations.
#include "megatron/config/data_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {
namespace {

using namespace rules;

/// Returns the first flag of fill-in-the-middle that is given.
std::optional<Setting> first_fim_flag(S s) {
  for (const Setting& setting : std::initializer_list<Setting>{
           &Fim::fim_rate, &Fim::fim_spm_rate, &Fim::fim_split_sample, &Fim::fim_fragment_rate,
           &Fim::fim_no_prefix, &Fim::fim_prefix_token, &Fim::fim_middle_token,
           &Fim::fim_suffix_token, &Fim::fim_pad_token, &Fim::fim_eod_token})
    if (setting.is_given(s)) return setting;
  return std::nullopt;
}

bool resets_documents(const DataConfig& data) {
  return data.reset_attention_mask || data.reset_position_ids ||
         data.dataloader_inter_document_masking;
}

bool cannot_format_conversations(S s) {
  const std::string& type = s.tokenizer->tokenizer_type;
  return !type.empty() && type != "SFTTokenizer" && type != "HuggingFaceTokenizer" &&
         type != "MultimodalTokenizer";
}

bool packs_documents(const DataConfig& data) { return data.document_packing_strategy != "wrapped"; }

}  // namespace

const Rules& fim_rules() {
  static const Rules rules = {
      rule([](S s) { return !s.data->fim.fim_data && first_fim_flag(s); },
           [](S s) {
             return Message{*first_fim_flag(s),
                            {"has an effect only with ", &Fim::fim_data},
                            {"add ", &Fim::fim_data, ", or leave it out"}};
           }),
      tunes({&Fim::fim_fragment_rate}, &Fim::fim_split_sample,
            {.fix = {"add ", &Fim::fim_split_sample, " TOKEN, or leave ", &Fim::fim_fragment_rate,
                     " out"}}),
      rule(
          [](S s) {
            return !s.data->fim.fim_split_sample.empty() && !s.data->fim.fim_fragment_rate;
          },
          {&Fim::fim_split_sample,
           "needs the share of fragments to reorder",
           {"add ", &Fim::fim_fragment_rate, " X"}}),
      rule([](S s) { return s.data->fim.fim_data && s.data->sft; },
           {&Fim::fim_data,
            {"does not go with the conversations of ", &Data::sft},
            "leave one of them out"}),
      rule([](S s) { return s.data->fim.fim_data && s.data->dataloader_inter_document_masking; },
           {&Data::dataloader_inter_document_masking,
            {"needs the lengths of documents, which ", &Fim::fim_data, " changes"},
            {"use ", &Data::reset_attention_mask, " and ", &Data::reset_position_ids,
             ", which follow the end-of-document tokens"}}),
  };
  return rules;
}

const Rules& document_packing_rules() {
  static const Rules rules = {
      rule([](S s) { return s.data->sft && packs_documents(*s.data); },
           {&Data::document_packing_strategy,
            {"has no effect with ", &Data::sft},
            {"use ", &Data::sft_packing_strategy}}),
      rule([](S s) { return s.data->fim.fim_data && packs_documents(*s.data); },
           {with_value(&Data::document_packing_strategy),
            {"needs the lengths of documents, which ", &Fim::fim_data, " changes"},
            "leave one of them out"}),
  };
  return rules;
}

/// Apart, because `dataset show` prints samples without a model that attends.
const Rules& document_attention_rules() {
  static const Rules rules = {
      rule(
          [](S s) {
            return packs_documents(*s.data) && !s.data->sft && !s.data->fim.fim_data &&
                   !s.data->dataloader_inter_document_masking;
          },
          {with_value(&Data::document_packing_strategy),
           "would let documents that were put together attend to each other",
           {"add ", &Data::dataloader_inter_document_masking}}),
  };
  return rules;
}

const Rules& sft_rules() {
  static const Rules of_conversations = {
      rule(cannot_format_conversations,
           {with_value(&Tokenizer::tokenizer_type),
            {"cannot format the conversations of ", &Data::sft},
            {"use SFTTokenizer with a tokenizer.json as ", &Tokenizer::tokenizer_model}}),
      rule([](S s) { return resets_documents(*s.data); },
           [](S s) {
             return Message{s.data->reset_attention_mask ? Words(&Data::reset_attention_mask)
                            : s.data->reset_position_ids
                                ? Words(&Data::reset_position_ids)
                                : Words(&Data::dataloader_inter_document_masking),
                            {"has no effect with ", &Data::sft,
                             ", where attention and positions restart with each conversation"},
                            "leave it out"};
           }),
      rule([](S s) { return s.data->eod_mask_loss; },
           {&Data::eod_mask_loss,
            {"has no effect with ", &Data::sft, ", whose loss is that of answers"},
            "leave it out"}),
  };
  static const Rules rules = {
      tunes({&Data::sft_tokenizer_prompt_format, &Data::sft_packing_strategy,
             &Tokenizer::chat_template},
            &Data::sft),
      when([](S s) { return s.data->sft; }, of_conversations),
  };
  return rules;
}

}  // namespace megatron
