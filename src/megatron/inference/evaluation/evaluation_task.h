// Tasks that measure a language model by the log-probabilities of texts. Definitions are those of
// lm-evaluation-harness (lm_eval/api/task.py, lm_eval/api/model.py: TemplateLM) and, for LAMBADA
// and WIKITEXT103, of Megatron-LM (tasks/zeroshot_gpt).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/inference/scorer.h"

namespace megatron {

class Tokenizer;
struct LoadedTokenizer;

/// What a model says of the targets of a text.
struct TextScore {
  double logprob = 0;      ///< the sum over the targets
  bool is_greedy = false;  ///< each is the most likely token
};

struct Metric {
  std::string name;
  double value = 0;
  std::optional<double> standard_error = {};
};

struct EvaluationTask {
  std::string name;
  std::int64_t num_examples = 0;
  std::vector<ScoredText> texts;
  std::int64_t num_cut = 0;  ///< texts whose beginning the model has no positions for
  std::function<std::vector<Metric>(std::span<const TextScore>)> metrics;
};

/// Makes tasks from the contents of files. UserErrors name file and line.
class TaskReader {
 public:
  /// The tokenizer must outlive the reader. `max_length`: positions of the model.
  TaskReader(const LoadedTokenizer& tokenizer, std::int64_t max_length);

  /// Reads JSON lines, all with the same members:
  /// - "query", "choices" and "gold", the index or the text of a choice. acc is how often the gold
  ///   choice is the most likely one behind the query and a space (or "target_delimiter"); acc_norm
  ///   divides log-probabilities by the number of characters of the choice.
  /// - "context" and "continuation". perplexity is exp(−mean log-probability of a continuation),
  ///   acc how often greedy decoding gives the continuation.
  /// - "text". The same, where the continuation is the last word.
  EvaluationTask lines(const std::string& file, std::string_view content) const;
  /// Reads Megatron's LAMBADA, lines {"text": …}: acc is how often greedy decoding gives the last
  /// token, or if `strict` the tokens of the last word.
  EvaluationTask lambada(const std::string& file, std::string_view content, bool strict) const;
  /// Reads a text and divides it into windows of `length` tokens that begin `stride` tokens apart;
  /// requires 1 <= stride <= length. A token is scored in the first window that has it. The
  /// adjusted perplexity is that of a word of the file.
  EvaluationTask wikitext(const std::string& file, const std::string& content, std::int64_t length,
                          std::int64_t stride) const;

 private:
  /// Adds a text whose targets are the ids that `continuation` adds to those of `context`; where an
  /// encoder reads `context`, all ids of `continuation`.
  void add_pair(EvaluationTask& task, std::string context, std::string continuation,
                const std::string& source) const;
  /// Adds a text, without the beginning of its context that the model has no positions for.
  /// UserError when a target would be left out.
  void add_text(EvaluationTask& task, ScoredText text) const;
  std::vector<std::int64_t> fragment(std::string_view text) const;

  /// Throws a UserError for a task without a context that an encoder could read.
  void refuse_encoder(const std::string& task) const;

  const LoadedTokenizer& loaded_;
  const Tokenizer& tokenizer_;
  std::int64_t max_length_;
  std::vector<std::int64_t> begin_;  ///< tokens that begin every text
};

/// Returns the mean, and its standard error with the variance of a sample.
Metric mean_metric(std::string name, const std::vector<double>& values);

}  // namespace megatron
