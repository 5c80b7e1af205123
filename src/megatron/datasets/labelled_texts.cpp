#include "megatron/datasets/labelled_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/random_state.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::int64_t kMostClasses = 1 << 20;

/// The names of a text and of the second of a pair, and of labels.
constexpr std::pair<const char*, const char*> kTextNames[] = {
    {"text", "text_pair"},     {"sentence1", "sentence2"}, {"question1", "question2"},
    {"premise", "hypothesis"}, {"question", "sentence"},   {"sentence", ""}};
constexpr const char* kLabelNames[] = {"label", "gold_label", "is_duplicate"};

std::string label_of(const JsonCursor& value) {
  return value->is_string() ? trim(value.text()) : std::to_string(value.integer());
}

/// Adds the questions on an article of RACE. An answer fills the blank of its question or follows
/// it.
void add_article(const JsonCursor& json, LabelledText text, LabelledTexts& texts) {
  text.text = json["article"].text();
  text.choices_come_first = true;
  const std::vector<JsonCursor> questions = json["questions"].elements(),
                                options = json["options"].elements(),
                                answers = json["answers"].elements();
  if (options.size() != questions.size() || answers.size() != questions.size())
    throw UserError({text.where, "has not as many questions as options and answers", ""});
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string question = questions[i].text();
    const bool has_blank = question.find('_') != std::string::npos;
    text.choices.clear();
    for (const JsonCursor& option : options[i].elements())
      text.choices.push_back(has_blank ? escaped_text(question, {{'_', option.text()}})
                                       : question + " " + option.text());
    text.label = label_of(answers[i]);
    texts.push_back(text);
  }
}

/// Fills in text and label, which stay empty where the record has none.
void read_record(const JsonCursor& json, bool has_choices, LabelledText& text) {
  if (has_choices) {
    text.text = (json.find("question") ? json["question"] : json["text"]).text();
    for (const JsonCursor& choice : json["choices"].elements())
      text.choices.push_back(choice.text());
  }
  for (const auto& [first, second] : kTextNames) {
    const auto found = json.find_given(first), other = json.find_given(second);
    if (!text.text.empty() || !found) continue;
    text.text = found->text();
    if (other) text.second = other->text();
  }
  for (const char* name : kLabelNames)
    if (const auto label = json.find_given(name)) text.label = label_of(*label);
}

LabelledTexts read_lines(const fs::path& path, bool has_choices, std::int64_t& left_out) {
  const bool is_table = path.extension() == ".tsv";
  LabelledTexts texts;
  std::vector<std::string> names;
  std::istringstream lines(read_file(path));
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    LabelledText text{.where = path.string() + ":" + std::to_string(number)};
    line = trim(replace_invalid_utf8(line).value_or(line));
    if (line.empty()) continue;
    const std::vector<std::string> cells =
        is_table ? split_at(line, '\t') : std::vector<std::string>();
    if (is_table && names.empty()) {
      names = cells;
      continue;
    }
    Json record = is_table ? Json::object() : parse_json(line, text.where);
    for (std::size_t i = 0; cells.size() == names.size() && i < cells.size(); ++i)
      record[names[i]] = cells[i];
    const JsonCursor json(std::move(record), text.where);
    if (has_choices && json.find("questions")) {
      add_article(json, std::move(text), texts);
      continue;
    }
    read_record(json, has_choices, text);
    if (!text.text.empty() && !text.label.empty())
      texts.push_back(std::move(text));
    else if (is_table)
      ++left_out;
    else
      throw UserError({text.where, "has no text or no label",
                       R"(write {"text": …, "label": …}, or "sentence1" and "sentence2")"});
  }
  return texts;
}

LabelledTexts read_texts(const fs::path& path, bool has_choices, LabelledData& data) {
  std::vector<fs::path> files{path};
  if (fs::is_directory(path)) {
    files.clear();
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    std::ranges::sort(files);
  }
  LabelledTexts texts;
  std::int64_t left_out = 0;
  for (const fs::path& file : files)
    std::ranges::move(read_lines(file, has_choices, left_out), std::back_inserter(texts));
  if (texts.empty())
    throw UserError(
        {path.string(), "holds no labelled text",
         "give JSON lines, a .tsv file whose first line names the columns of a text and "
         "its label, or for RACE a folder with .txt files"});
  if (left_out > 0)
    data.warnings.push_back(path.string() + ": " + std::to_string(left_out) +
                            " lines without a text, a label or all columns are left out");
  return texts;
}

/// Returns the number that a label is, or the letter of a choice; −1 for others.
std::int64_t number_of(const std::string& label, bool has_choices) {
  if (has_choices && label.size() == 1 && label[0] >= 'A') return label[0] - 'A';
  return exact_number<std::int64_t>(label).value_or(-1);
}

void number_text(bool has_choices, LabelledData& data, LabelledText& text) {
  const auto place = std::ranges::lower_bound(data.classes, text.label);
  if (data.classes.empty())
    text.number = number_of(text.label, has_choices);
  else
    text.number =
        place != data.classes.end() && *place == text.label ? place - data.classes.begin() : -1;
  if (text.number < 0 || text.number >= (has_choices ? std::ssize(text.choices) : kMostClasses))
    throw UserError({text.where, "the label is '" + text.label + "'",
                     has_choices ? "give the number of a choice from 0, or its letter from A"
                     : data.classes.empty() ? "number classes from 0"
                                            : "the classes are " + joined_text(data.classes)});
  if (!has_choices) data.num_classes = std::max(data.num_classes, text.number + 1);
  if (has_choices && std::ssize(text.choices) != data.num_choices)
    throw UserError(
        {text.where, "has " + std::to_string(text.choices.size()) + " choices",
         "the first sample has " + std::to_string(data.num_choices) + "; give all as many"});
}

}  // namespace

LabelledData read_labelled_data(const DataConfig& config) {
  const bool has_choices = ranks_choices(config.task), is_mnli = config.task == FinetuneTask::mnli;
  LabelledData data{.num_classes = has_choices ? 1
                                   : is_mnli   ? 3
                                               : 2,
                    .num_choices = has_choices ? 4 : 1};
  const DataSources sources = data_sources(config);
  std::map<std::string, LabelledTexts> files;
  const auto read = [&](const std::optional<Blend>& blend) {
    for (const std::string& path : blend.value_or(Blend()).prefixes)
      if (!files.contains(path)) files[path] = read_texts(path, has_choices, data);
  };
  read(sources.blend);
  if (sources.blend_per_split) std::ranges::for_each(*sources.blend_per_split, read);
  std::set<std::string> labels;
  for (const auto& [path, texts] : files)
    for (const LabelledText& text : texts) labels.insert(text.label);
  if (is_mnli) labels = {"contradiction", "entailment", "neutral"};
  const auto is_number = [](const std::string& label) {
    return exact_number<std::int64_t>(label).has_value();
  };
  if (!has_choices && !std::ranges::all_of(labels, is_number))
    data.classes.assign(labels.begin(), labels.end());
  data.num_classes = std::max(data.num_classes, std::ssize(data.classes));
  if (has_choices && !files.empty())
    data.num_choices = std::ssize(files.begin()->second.front().choices);
  for (auto& [path, texts] : files) {
    for (LabelledText& text : texts) number_text(has_choices, data, text);
    data.files[path] = std::make_shared<const LabelledTexts>(std::move(texts));
  }
  return data;
}

LabelledTexts mock_labelled_texts(std::int64_t num_classes, std::int64_t num_choices,
                                  const Tokenizer& tokenizer) {
  RandomState random(0);
  const auto words = [&] {
    std::vector<std::int32_t> ids(1 + random.interval(30));
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>(
          random.interval(static_cast<std::uint64_t>(tokenizer.vocab_size() - 1)));
    return tokenizer.decode(ids);
  };
  LabelledTexts texts(1000);
  for (std::int64_t i = 0; LabelledText & text : texts) {
    text.text = words();
    if (num_choices == 1 && i % 2 == 1) text.second = words();
    while (num_choices > 1 && std::ssize(text.choices) < num_choices)
      text.choices.push_back(words());
    text.number = i++ % std::max(num_classes, num_choices);
    text.where = "mock data";
  }
  return texts;
}

}  // namespace megatron
