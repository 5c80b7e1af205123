// Rules on what samples are made of: fill-in-the-middle, packed documents and conversations.
#include "megatron/config/data_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
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

bool cannot_format_conversations(S s) {
  const std::string& type = s.tokenizer->tokenizer_type;
  return !type.empty() && type != "SFTTokenizer" && type != "HuggingFaceTokenizer" &&
         type != "MultimodalTokenizer";
}

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
      refuse({&Fim::fim_split_sample, without(&Fim::fim_fragment_rate)},
             "needs the share of fragments to reorder", {"add ", &Fim::fim_fragment_rate, " X"}),
      refuse({&Fim::fim_data, &Data::sft}, {"does not go with the conversations of ", &Data::sft},
             "leave one of them out"),
      refuse({&Data::dataloader_inter_document_masking, &Fim::fim_data},
             {"needs the lengths of documents, which ", &Fim::fim_data, " changes"},
             {"use ", &Data::reset_attention_mask, " and ", &Data::reset_position_ids,
              ", which follow the end-of-document tokens"}),
  };
  return rules;
}

const Rules& document_packing_rules() {
  static const Rules rules = {
      refuse({&Data::document_packing_strategy, &Data::sft}, {"has no effect with ", &Data::sft},
             {"use ", &Data::sft_packing_strategy}),
      refuse({valued(&Data::document_packing_strategy), &Fim::fim_data},
             {"needs the lengths of documents, which ", &Fim::fim_data, " changes"},
             "leave one of them out"),
  };
  return rules;
}

/// Apart, because `dataset show` prints samples without a model that attends.
const Rules& document_attention_rules() {
  static const Rules rules =
      refuse({valued(&Data::document_packing_strategy), without(&Data::sft),
              without(&Fim::fim_data), without(&Data::dataloader_inter_document_masking)},
             "would let documents that were put together attend to each other",
             {"add ", &Data::dataloader_inter_document_masking});
  return rules;
}

const Rules& sft_rules() {
  static const Rules rules = {
      tunes({&Data::sft_tokenizer_prompt_format, &Data::sft_packing_strategy,
             &Tokenizer::chat_template},
            &Data::sft),
      rule([](S s) { return s.data->sft && cannot_format_conversations(s); },
           {with_value(&Tokenizer::tokenizer_type),
            {"cannot format the conversations of ", &Data::sft},
            {"use SFTTokenizer with a tokenizer.json as ", &Tokenizer::tokenizer_model}}),
      idle({&Data::reset_attention_mask, &Data::reset_position_ids,
            &Data::dataloader_inter_document_masking},
           &Data::sft, {.why = ", where attention and positions restart with each conversation"}),
      idle({&Data::eod_mask_loss}, &Data::sft, {.why = ", whose loss is that of answers"}),
  };
  return rules;
}

}  // namespace megatron
