// Who proposes tokens that a pass of the model verifies together.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

template <class Options>
class FieldTable;

/// Named as in vLLM's speculative_config.
enum class SpeculativeMethod {
  automatic,    ///< draft_model if one is given, otherwise mtp
  ngram,        ///< what followed the last tokens before (prompt lookup)
  draft_model,  ///< a smaller model with the same vocabulary
  mtp           ///< the model's own heads of multi-token prediction
};

/// speculative_table() says what the options do.
struct SpeculativeConfig {
  std::int64_t num_speculative_tokens = 0;  ///< drafts in a step of a text; 0: none
  SpeculativeMethod speculative_method = SpeculativeMethod::automatic;
  std::string speculative_model;
  bool speculative_rejection_sampling = false;
  std::int64_t ngram_prompt_lookup_max = 4, ngram_prompt_lookup_min = 2;

  /// Returns the method, which is not automatic.
  SpeculativeMethod method() const;
};

const FieldTable<SpeculativeConfig>& speculative_table();

/// Throws a UserError that names the flags of options that do not fit together.
void check_speculative_options(const SpeculativeConfig& config);

}  // namespace megatron
