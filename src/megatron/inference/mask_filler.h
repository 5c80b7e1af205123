// Fills masks: the most likely tokens in place of each mask of a text, by a model that reads whole
// texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/pipeline/model_runner.h"

namespace megatron {

class Tokenizer;

/// A text whose masks are at `masks` among its tokens.
struct MaskedText {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> masks;
};

/// Returns the tokens of a text in which masks are written as [MASK] or <mask>, whichever the
/// tokenizer has, between those that begin and end a text. UserError for a tokenizer or a text
/// without one.
MaskedText masked_text(const Tokenizer& tokenizer, const std::string& text);

/// A token in place of a mask, and its probability among all tokens there.
struct LikelyToken {
  std::int64_t id = 0;
  double probability = 0;
};

/// Throws a UserError for a model that predicts the next token, or that has no head of masked
/// tokens.
void require_masked_model(const ModelRunner& model);

/// Returns up to `num_best` tokens for each mask, the most likely first. Calls
/// require_masked_model(). Collective over the ranks of the model.
std::vector<std::vector<LikelyToken>> fill_masks(const ModelRunner& model, const MaskedText& text,
                                                 std::int64_t num_best);

}  // namespace megatron
