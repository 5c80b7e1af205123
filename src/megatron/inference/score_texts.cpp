#include "megatron/inference/score_texts.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/input_ids.h"

namespace megatron {
namespace {

// Most tokens of a pass, and most logits: 256 MiB in float32.
constexpr std::int64_t kMaxTokens = 4096, kMaxLogits = std::int64_t{1} << 26;

/// Tokens of a text that a pass computes.
struct Part {
  std::size_t text;
  std::int64_t begin, end;
};

class TextScorer {
 public:
  TextScorer(const ModelRunner& model, std::span<const ScoredText> texts, std::int64_t num_best)
      : model_(model), texts_(texts), num_best_(num_best), scores(texts.size()) {}

  /// Computes parts of texts and scores those of their targets that follow a token of them.
  void run(const std::vector<Part>& parts, const Caches* caches) {
    std::vector<std::span<const std::int64_t>> inputs;
    std::vector<std::int64_t> num_logits;
    std::vector<Row> rows;
    for (const auto& [text, begin, end] : parts) {
      const auto& [ids, num_targets, source] = texts_[text];
      inputs.push_back(std::span(ids).subspan(static_cast<std::size_t>(begin),
                                              static_cast<std::size_t>(end - begin)));
      // The logits of a token are those of the next one.
      const std::int64_t first = std::max(begin + 1, std::ssize(ids) - num_targets);
      for (std::int64_t target = first; target <= end; ++target)
        rows.push_back({text, target, ids[static_cast<std::size_t>(target)]});
      num_logits.push_back(std::max<std::int64_t>(0, end + 1 - first));
    }
    const Microbatch tokens = microbatch_of(inputs);
    const at::Tensor logits = model_
                                  .infer({.microbatch = tokens,
                                          .wants = Wants::last_logits,
                                          .caches = caches,
                                          .num_logits = num_logits})
                                  .to(c10::kCPU, c10::kFloat)
                                  .contiguous();
    MEGATRON_CHECK(logits.size(0) == std::ssize(rows), logits.size(0), " rows of logits for ",
                   rows.size(), " targets");
    std::vector<GivenRow> given;
    for (std::size_t i = 0; i < rows.size(); ++i)
      given.push_back({row_of(logits, i), rows[i].id, num_best_});
    std::vector<SampledToken> scored = score_rows(given);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      check(rows[i], given[i].logits, scored[i].logprob);
      scores[rows[i].text].push_back(std::move(scored[i]));
    }
  }

 private:
  struct Row {
    std::size_t text;
    std::int64_t target;  ///< place among the ids
    std::int64_t id;
  };

  void check(const Row& row, std::span<const float> logits, double logprob) const {
    if (std::isfinite(logprob)) return;
    const std::string place = "ids[" + std::to_string(row.target) + "]",
                      source = texts_[row.text].source;
    check_logits(model_.model(), logits, source + ", " + place);
    throw_non_finite_logits(model_.model(), source + ": the log-probability of " + place,
                            std::to_string(logprob));
  }

  const ModelRunner& model_;
  std::span<const ScoredText> texts_;
  std::int64_t num_best_;

 public:
  std::vector<std::vector<SampledToken>> scores;
};

}  // namespace

std::vector<std::vector<SampledToken>> score_texts(const ModelRunner& model,
                                                   std::span<const ScoredText> texts,
                                                   const ScoreTextsOptions& options) {
  const c10::InferenceMode no_gradients;
  for (const ScoredText& text : texts) {
    MEGATRON_CHECK(text.num_targets > 0 && text.num_targets < std::ssize(text.ids),
                   text.num_targets, " targets of ", text.ids.size(), " tokens");
    // The last token needs no position.
    check_token_ids(std::span(text.ids).first(text.ids.size() - 1), model.config(), text.source);
    check_token_ids(std::span(text.ids).last(1), model.config(), text.source);
  }
  const std::int64_t most =
      std::clamp<std::int64_t>(kMaxLogits / model.config().vocab_size, 1, kMaxTokens);
  const bool are_alone = shares_expert_capacity(model.config());
  TextScorer scorer(model, texts, options.num_best);
  for (std::size_t next = 0; next < texts.size();) {
    std::vector<Part> parts;
    for (std::int64_t left = most; next < texts.size(); ++next) {
      const std::int64_t size = std::ssize(texts[next].ids) - 1;
      if (!parts.empty() && (are_alone || size > left)) break;
      parts.push_back({next, 0, size});
      left -= size;
    }
    const Part last = parts.back();
    if (last.end <= most) {
      scorer.run(parts, nullptr);
    } else {  // a long text, which is alone
      SequenceCache cache;
      const Caches caches{&cache};
      for (std::int64_t begin = 0; begin < last.end; begin += most)
        scorer.run({{last.text, begin, std::min(last.end, begin + most)}}, &caches);
    }
    if (options.on_progress) options.on_progress(next);
  }
  return std::move(scorer.scores);
}

}  // namespace megatron
