#include "megatron/inference/mask_filler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <tuple>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/input_ids.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

/// The tokens of BERT's tokenizers and of RoBERTa's.
struct Marks {
  const char *mask, *begin, *end;
};
constexpr Marks kMarks[] = {{"[MASK]", "[CLS]", "[SEP]"}, {"<mask>", "<s>", "</s>"}};

const Marks& marks_of(const Tokenizer& tokenizer) {
  for (const Marks& marks : kMarks)
    if (tokenizer.find(marks.mask) >= 0) return marks;
  throw UserError({"the tokenizer has neither [MASK] nor <mask>", std::string(tokenizer.name()),
                   "use the tokenizer that the model was trained with"});
}

}  // namespace

MaskedText masked_text(const Tokenizer& tokenizer, const std::string& text) {
  const Marks& marks = marks_of(tokenizer);
  const std::int64_t mask = tokenizer.find(marks.mask), begin = tokenizer.find(marks.begin),
                     end = tokenizer.find(marks.end);
  const std::vector<std::int32_t> encoded = tokenizer.encode(text);
  MaskedText result{.ids = {encoded.begin(), encoded.end()}, .masks = {}};
  std::vector<std::int64_t>& ids = result.ids;
  // A vocab.txt says nothing of the tokens around a text.
  if (begin >= 0 && (ids.empty() || ids.front() != begin)) ids.insert(ids.begin(), begin);
  if (end >= 0 && (ids.empty() || ids.back() != end)) ids.push_back(end);
  for (std::int64_t i = 0; i < std::ssize(ids); ++i)
    if (ids[static_cast<std::size_t>(i)] == mask) result.masks.push_back(i);
  if (result.masks.empty())
    throw UserError({"'" + text + "'", "has no mask", std::string("write ") + marks.mask});
  return result;
}

void require_masked_model(const ModelRunner& model) {
  const bool is_causal = model.model().is_causal();
  if (is_causal || !model.config().has_lm_head())
    throw UserError({"the model is no masked language model",
                     is_causal ? "it predicts the next token" : "it has no head of masked tokens",
                     is_causal ? "load an encoder such as BERT, or use `megatron generate`"
                               : "load the encoder from which it was finetuned"});
}

std::vector<std::vector<LikelyToken>> fill_masks(const ModelRunner& model, const MaskedText& text,
                                                 std::int64_t num_best) {
  require_masked_model(model);
  check_token_ids(text.ids, model.config(), "the text", std::ssize(text.ids));
  const Microbatch microbatch = microbatch_of({text.ids});
  const at::Tensor logits = model.infer({.microbatch = microbatch, .wants = Wants::logits})[0];
  std::vector<std::vector<LikelyToken>> filled;
  for (const std::int64_t mask : text.masks) {
    const at::Tensor probabilities = at::softmax(logits[mask].to(c10::kCPU).to(at::kDouble), 0);
    const auto [values, ids] = at::topk(probabilities, std::min(num_best, probabilities.size(0)));
    std::vector<LikelyToken>& best = filled.emplace_back();
    for (std::int64_t i = 0; i < values.size(0); ++i)
      best.push_back({ids[i].item<std::int64_t>(), values[i].item<double>()});
  }
  return filled;
}

}  // namespace megatron
