#include "megatron/inference/evaluation/evaluation_task.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/inference/evaluation/detokenize.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\f\v";

/// A line with choices: where its texts begin among those of the task, and which is right.
struct Question {
  std::size_t first = 0, gold = 0;
  std::vector<double> num_characters;  ///< of each choice
};

std::size_t gold_of(const JsonCursor& gold, const std::vector<std::string>& choices) {
  const auto found = std::ranges::find(choices, gold->is_string() ? gold.text() : "");
  const std::int64_t index = gold->is_string() ? found - choices.begin() : gold.integer();
  if (index < 0 || index >= std::ssize(choices))
    throw UserError({gold.name(), gold->dump(), "give the index or the text of a choice"});
  return static_cast<std::size_t>(index);
}

/// Returns acc and acc_norm. Of equal scores the first counts, as with numpy.argmax.
std::vector<Metric> choice_metrics(const std::vector<Question>& questions,
                                   std::span<const TextScore> scores) {
  std::vector<double> right, right_by_length;
  for (const auto& [first, gold, num_characters] : questions) {
    std::vector<double> sums, means;
    for (std::size_t i = 0; i < num_characters.size(); ++i) {
      sums.push_back(scores[first + i].logprob);
      means.push_back(sums.back() / num_characters[i]);
    }
    const auto is_right = [&, gold = gold](const std::vector<double>& values) {
      return std::ranges::max_element(values) == values.begin() + static_cast<std::ptrdiff_t>(gold);
    };
    right.push_back(is_right(sums));
    right_by_length.push_back(is_right(means));
  }
  return {mean_metric("acc", right), mean_metric("acc_norm", right_by_length)};
}

Metric accuracy(std::span<const TextScore> scores) {
  std::vector<double> values;
  for (const TextScore& score : scores) values.push_back(score.is_greedy ? 1 : 0);
  return mean_metric("acc", values);
}

std::vector<Metric> continuation_metrics(std::span<const TextScore> scores) {
  double sum = 0;
  for (const TextScore& score : scores) sum += score.logprob;
  return {{"perplexity", std::exp(-sum / static_cast<double>(scores.size()))}, accuracy(scores)};
}

}  // namespace

Metric mean_metric(std::string name, const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  Metric metric{std::move(name), mean};
  if (values.size() > 1) metric.standard_error = std::sqrt(squares / (count - 1) / count);
  return metric;
}

TaskReader::TaskReader(const LoadedTokenizer& tokenizer, std::int64_t max_length)
    : loaded_(tokenizer), tokenizer_(*tokenizer.tokenizer), max_length_(max_length) {
  const std::vector<std::int32_t> empty = tokenizer_.encode("");
  if (!empty.empty() && empty.front() == tokenizer_.bos()) begin_ = {tokenizer_.bos()};
}

std::vector<std::int64_t> TaskReader::fragment(std::string_view text) const {
  std::vector<std::int64_t> ids = begin_;
  const std::vector<std::int32_t> own = tokenizer_.encode_fragment(text);
  ids.insert(ids.end(), own.begin(), own.end());
  return ids;
}

void TaskReader::add_pair(EvaluationTask& task, std::string context, std::string continuation,
                          const std::string& source) const {
  // Spaces between the two belong to the continuation, with which tokenizers join them.
  const std::size_t end = context.find_last_not_of(kSpaces) + 1;  // 0: there is none
  continuation.insert(0, context, end, std::string::npos);
  context.resize(end);
  ScoredText text{fragment(context), 0, source};
  std::vector<std::int64_t> whole = fragment(context + continuation);
  if (loaded_.has_encoder()) {  // which reads the context, with the marks of a whole text
    const std::vector<std::int32_t> target = tokenizer_.encode_fragment(continuation);
    text.encoded = prompt_ids(tokenizer_, context, source + ": the context");
    loaded_.end_encoded(text.encoded);
    text.ids = whole = {loaded_.decoder_start};
    whole.insert(whole.end(), target.begin(), target.end());
  }
  const std::size_t known = std::min(text.ids.size(), whole.size());
  text.num_targets = std::ssize(whole) - static_cast<std::int64_t>(known);
  if (text.num_targets == 0)
    throw UserError({source, "the continuation adds no token", "give one that does"});
  if (text.ids.empty()) text.ids = prompt_ids(tokenizer_, "", source + ": the context");
  text.ids.insert(text.ids.end(), whole.begin() + static_cast<std::ptrdiff_t>(known), whole.end());
  add_text(task, std::move(text));
}

void TaskReader::add_text(EvaluationTask& task, ScoredText text) const {
  if (text.num_targets > max_length_)
    throw UserError({text.source,
                     "the continuation has " + std::to_string(text.num_targets) + " tokens",
                     "the model has positions for " + std::to_string(max_length_)});
  // The last token of a text needs no position, but an encoder reads all of its own.
  const std::int64_t num_unread = text.encoded.empty() ? 1 : 0;
  std::vector<std::int64_t>& context = text.encoded.empty() ? text.ids : text.encoded;
  if (const std::int64_t excess = std::ssize(context) - num_unread - max_length_; excess > 0) {
    context.erase(context.begin(), context.begin() + excess);
    ++task.num_cut;
  }
  task.texts.push_back(std::move(text));
}

void TaskReader::refuse_encoder(const std::string& task) const {
  if (loaded_.has_encoder())
    throw UserError({"--task " + task,
                     "its texts have no context, and the model has an encoder to read one",
                     "give a file with choices or continuations"});
}

EvaluationTask TaskReader::lines(const std::string& file, std::string_view content) const {
  EvaluationTask task{.name = file};
  std::vector<Question> questions;
  std::string form;
  for (const auto& [source, line] : lines_of(content, file)) {
    const JsonCursor example(parse_json(line, source), source);
    const std::string own = example.find("choices")        ? "choices"
                            : example.find("continuation") ? "continuation"
                                                           : "text";
    if (form.empty()) form = own;
    const JsonCursor value = example[form];
    ++task.num_examples;
    if (form == "continuation") {
      add_pair(task, example["context"].text(), value.text(), source);
    } else if (form == "text") {
      const std::string text(trim(value.text()));
      if (text.empty()) throw UserError({source, "the text has no word", "give one with words"});
      const std::size_t space = std::min(text.rfind(' '), text.size());  // the size without one
      add_pair(task, space < text.size() ? text.substr(0, space) : "",
               " " + text.substr(space < text.size() ? space + 1 : 0), source);
    } else {
      Question& question = questions.emplace_back(Question{.first = task.texts.size()});
      const auto delimiter = example.find("target_delimiter");
      std::vector<std::string> choices;
      for (const JsonCursor& choice : value.elements()) {
        choices.push_back(choice.text());
        question.num_characters.push_back(static_cast<double>(count_characters(choices.back())));
        add_pair(task, example["query"].text(),
                 (delimiter ? delimiter->text() : " ") + choices.back(), source);
      }
      question.gold = gold_of(example["gold"], choices);
    }
  }
  if (task.texts.empty())
    throw UserError({"--task " + file, "contains no example", "write one JSON object per line"});
  if (questions.empty())
    task.metrics = continuation_metrics;
  else
    task.metrics = [questions](std::span<const TextScore> scores) {
      return choice_metrics(questions, scores);
    };
  return task;
}

EvaluationTask TaskReader::lambada(const std::string& file, std::string_view content,
                                   bool strict) const {
  refuse_encoder("LAMBADA");
  EvaluationTask task{.name = "LAMBADA",
                      .metrics = [](auto scores) { return std::vector{accuracy(scores)}; }};
  for (const auto& [source, line] : lines_of(content, file)) {
    const std::string text = JsonCursor(parse_json(line, source), source)["text"].text();
    ScoredText own{fragment(text), 1, source};
    const std::vector<std::string> words = split_words(text);
    if (strict && !words.empty()) {
      own.ids = fragment(trim(std::string_view(text).substr(0, text.rfind(words.back()))));
      const std::vector<std::int32_t> last = tokenizer_.encode_fragment(" " + words.back());
      own.ids.insert(own.ids.end(), last.begin(), last.end());
      own.num_targets = std::ssize(last);
    }
    if (own.num_targets >= std::ssize(own.ids))
      throw UserError({source, "there is no token before the last word", "give a longer text"});
    add_text(task, std::move(own));
  }
  task.num_examples = std::ssize(task.texts);
  if (task.texts.empty())
    throw UserError(
        {"--valid-data " + file, "contains no example", "write one {\"text\": …} per line"});
  return task;
}

EvaluationTask TaskReader::wikitext(const std::string& file, const std::string& content,
                                    std::int64_t length, std::int64_t stride) const {
  refuse_encoder("WIKITEXT103");
  const std::vector<std::int64_t> ids = fragment(detokenized(file, content));
  const auto num_words = 1 + std::ranges::count(trim(content), ' ');
  const std::int64_t num_tokens = std::ssize(ids);
  if (num_tokens < 2 || num_words < 2)
    throw UserError({"--valid-data " + file, "is too short", "give at least two words"});
  EvaluationTask task{.name = "WIKITEXT103", .num_examples = num_tokens - 1};
  for (std::int64_t begin = 0, scored = 1; scored < num_tokens; begin += stride) {
    const std::int64_t end = std::min(begin + length + 1, num_tokens);
    task.texts.push_back({{ids.begin() + begin, ids.begin() + end},
                          end - scored,
                          file + ", tokens from " + std::to_string(begin)});
    scored = end;
  }
  const auto num_scored = static_cast<double>(num_tokens - 1);
  const double ratio = num_scored / static_cast<double>(num_words - 1);
  task.metrics = [num_scored, ratio](std::span<const TextScore> scores) -> std::vector<Metric> {
    double sum = 0;
    for (const TextScore& score : scores) sum -= score.logprob;
    const double loss = sum / num_scored;
    return {{"avg_loss", loss},
            {"ppl", std::exp(std::min(20.0, loss))},
            {"adjusted_ppl", std::exp(std::min(20.0, loss * ratio))},
            {"token_ratio", ratio}};
  };
  return task;
}

}  // namespace megatron
