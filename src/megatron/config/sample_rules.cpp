// Rules on what samples are made of: fill-in-the-middle, packed documents and conversations.
#include "megatron/config/data_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {
namespace {

using namespace rules;

bool cannot_format_conversations(S s) {
  const std::string& type = s.tokenizer->tokenizer_type;
  return type != "SFTTokenizer" && type != "HuggingFaceTokenizer" && type != "MultimodalTokenizer";
}

Rules fim_rules() {
  return {
      tunes({&Fim::fim_rate, &Fim::fim_spm_rate, &Fim::fim_split_sample, &Fim::fim_fragment_rate,
             &Fim::fim_no_prefix, &Fim::fim_prefix_token, &Fim::fim_middle_token,
             &Fim::fim_suffix_token, &Fim::fim_pad_token, &Fim::fim_eod_token},
            &Fim::fim_data),
      tunes({&Fim::fim_fragment_rate}, &Fim::fim_split_sample),
      needs(&Fim::fim_split_sample, &Fim::fim_fragment_rate,
            {.why = ", the share of fragments to reorder"}),
      excludes(&Fim::fim_data, &Data::sft, {.why = ", whose samples are conversations"}),
      excludes(&Data::dataloader_inter_document_masking, &Fim::fim_data,
               {.why = ", which changes the lengths of documents",
                .fix = {"use ", &Data::reset_attention_mask, " and ", &Data::reset_position_ids,
                        ", which follow the end-of-document tokens"}}),
  };
}

Rules document_packing_rules() {
  return {
      idle({&Data::document_packing_strategy}, &Data::sft,
           {.fix = {"use ", &Data::sft_packing_strategy}}),
      excludes(valued(&Data::document_packing_strategy), &Fim::fim_data,
               {.why = ", which changes the lengths of documents"}),
  };
}

Rules sft_rules() {
  return {
      tunes({&Data::sft_tokenizer_prompt_format, &Data::sft_packing_strategy,
             &Tokenizer::chat_template},
            &Data::sft),
      refuse({valued(&Tokenizer::tokenizer_type), &Data::sft, cannot_format_conversations},
             {"cannot format the conversations of ", &Data::sft},
             {"use SFTTokenizer with a tokenizer.json as ", &Tokenizer::tokenizer_model}),
      idle({&Data::reset_attention_mask, &Data::reset_position_ids,
            &Data::dataloader_inter_document_masking},
           &Data::sft, {.why = ", where attention and positions restart with each conversation"}),
      idle({&Data::eod_mask_loss}, &Data::sft, {.why = ", whose loss is that of answers"}),
  };
}

}  // namespace

const Rules& sample_rules() {
  static const Rules rules = {fim_rules(), document_packing_rules(), sft_rules(),
                              tunes({&Data::data_sharding}, is(&Data::dataloader_type, "cyclic"))};
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

}  // namespace megatron
