// Rules on what samples are made of: fill-in-the-middle.
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"

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

}  // namespace

const std::vector<Rule>& fim_rules() {
  static const std::vector<Rule> rules = {
      {{"fim_data", "fim_rate", "fim_spm_rate", "fim_split_sample", "fim_fragment_rate"},
       [](S s) { return !s.data.fim.fim_data && !first_fim_flag(s.data.fim).empty(); },
       [](S s) {
         return Parts{first_fim_flag(s.data.fim), "has an effect only with --fim-data",
                      "add --fim-data, or leave it out"};
       }},
      {{"fim_split_sample", "fim_fragment_rate"},
       [](S s) {
         return s.data.fim.fim_split_sample.empty() == s.data.fim.fim_fragment_rate.has_value();
       },
       [](S s) {
         return s.data.fim.fim_split_sample.empty()
                    ? Parts{"--fim-fragment-rate", "has an effect only with --fim-split-sample",
                            "add --fim-split-sample TOKEN, or leave it out"}
                    : Parts{"--fim-split-sample", "needs the share of fragments to reorder",
                            "add --fim-fragment-rate X"};
       }},
      {{"fim_data", "mock_data", "data_path"},
       [](S s) { return s.data.fim.fim_data && !has_paths(s.data); },
       [](S) {
         return Parts{"--fim-data", "reorders text, and mock data have none",
                      "add --data-path with datasets"};
       }},
      {{"fim_data", "dataloader_inter_document_masking"},
       [](S s) { return s.data.fim.fim_data && s.data.dataloader_inter_document_masking; },
       [](S) {
         return Parts{"--dataloader-inter-document-masking",
                      "needs the lengths of documents, which --fim-data changes",
                      "use --reset-attention-mask and --reset-position-ids, which follow the "
                      "end-of-document tokens"};
       }},
  };
  return rules;
}

}  // namespace megatron
