#include "megatron/datasets/labelled_texts.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/random_state.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::int64_t kMostClasses = 1 << 20;
constexpr std::size_t kRaceChoices = 4, kMockTexts = 1000;

/// The names of a text and of the second of a pair, in JSON lines and in the first line of a table.
constexpr std::array<std::pair<const char*, const char*>, 6> kTextNames{{{"text", "text_pair"},
                                                                         {"sentence1", "sentence2"},
                                                                         {"question1", "question2"},
                                                                         {"premise", "hypothesis"},
                                                                         {"question", "sentence"},
                                                                         {"sentence", ""}}};
constexpr std::array kLabelNames{"label", "gold_label", "is_duplicate"};

/// Megatron-LM's clean_text: one space for each run of white space, and none before a full stop
/// that a space follows.
std::string cleaned(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (!is_white_space(c) && !(c >= 0x1C && c <= 0x1F))
      out.append(text.substr(begin, at - begin));
    else if (out.empty() || out.back() != ' ')
      out += ' ';
  }
  for (int pass = 0; pass < 3; ++pass)
    for (std::size_t at = 0; (at = out.find(" . ", at)) != std::string::npos; at += 2)
      out.erase(at, 1);
  return out;
}

/// Calls use(line, where) for the lines of a file that are not blank.
template <class Use>
void for_each_line(const fs::path& path, Use use) {
  std::string text = read_file(path);
  if (auto valid = replace_invalid_utf8(text)) text = std::move(*valid);
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    line.remove_suffix(line.ends_with('\r') ? 1 : 0);
    ++number;
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      use(line, path.string() + ":" + std::to_string(number));
  }
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    cells.push_back(trim(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return cells;
}

/// Where a table has what it is read for.
struct Columns {
  std::size_t text = 0, label = 0, count = 0;
  std::optional<std::size_t> second = {};
};

Columns columns_of(const std::vector<std::string>& names, FinetuneTask task,
                   const std::string& where) {
  const auto require = [&](bool is_right, const std::string& wanted) {
    if (!is_right)
      throw UserError({where, "the table has " + std::to_string(names.size()) + " columns",
                       "give a table " + wanted + ", as GLUE's train.tsv and dev.tsv have"});
  };
  Columns columns{.count = names.size()};
  if (task == FinetuneTask::mnli) {
    require(names.size() > 10, "with the texts in columns 9 and 10 and the label in the last one");
    return {.text = 8, .label = names.size() - 1, .count = names.size(), .second = 9};
  }
  if (task == FinetuneTask::qqp) {
    require(names.size() == 6, "of six columns, the last of which is the label");
    return {.text = 3, .label = 5, .count = 6, .second = 4};
  }
  const auto place = [&](const char* name) -> std::optional<std::size_t> {
    const auto found = std::ranges::find(names, name);
    return found == names.end() ? std::nullopt : std::optional<std::size_t>(found - names.begin());
  };
  std::optional<std::size_t> text, label;
  for (const auto& [first, second] : kTextNames) {
    if (text || !(text = place(first))) continue;
    columns.second = place(second);
  }
  for (const char* name : kLabelNames)
    if (!label) label = place(name);
  if (!text || !label)
    throw UserError({where, "the first line names no columns of a text and its label",
                     "name them text and label, or sentence1, sentence2 and label"});
  columns.text = *text;
  columns.label = *label;
  return columns;
}

LabelledTexts read_table(const fs::path& path, FinetuneTask task,
                         std::vector<std::string>& warnings) {
  LabelledTexts texts;
  std::optional<Columns> columns;
  std::int64_t left_out = 0;
  for_each_line(path, [&](std::string_view line, const std::string& where) {
    // Python's str.strip() comes first, so an empty cell at either end is missing.
    const std::vector<std::string> cells = cells_of(
        task == FinetuneTask::mnli || task == FinetuneTask::qqp ? trim(line) : std::string(line));
    if (!columns) {
      columns = columns_of(cells, task, where);
      return;
    }
    const bool is_qqp = task == FinetuneTask::qqp;
    const bool is_mnli = task == FinetuneTask::mnli;
    const bool is_whole = is_mnli ? cells.size() > 10 : cells.size() == columns->count;
    LabelledText text{.where = where};
    if (is_whole) {
      text.text = cleaned(cells[columns->text]);
      if (columns->second) text.second = cleaned(cells[*columns->second]);
      text.label = is_mnli ? cells.back() : cells[columns->label];
    }
    if (is_whole && !text.text.empty() && (!columns->second || !text.second.empty())) {
      texts.push_back(std::move(text));
    } else if (is_qqp) {
      ++left_out;
    } else if (!is_whole) {
      throw UserError({where, "has " + std::to_string(cells.size()) + " columns",
                       "the first line has " + std::to_string(columns->count)});
    } else {
      throw UserError({where, "has an empty text", "write one, or leave the line out"});
    }
  });
  if (left_out > 0)
    warnings.push_back(path.string() + ": " + std::to_string(left_out) +
                       " lines without six columns or with an empty text are left out");
  return texts;
}

std::string text_of(const JsonCursor& value) {
  std::string text = value.text();
  if (text.empty()) throw UserError({value.name(), "is empty", "write a text"});
  return text;
}

std::string label_of(const JsonCursor& value) {
  return value->is_string() ? trim(value.text()) : std::to_string(value.integer());
}

std::vector<std::string> choices_of(const JsonCursor& list) {
  std::vector<std::string> choices;
  for (const JsonCursor& choice : list.elements()) choices.push_back(choice.text());
  if (choices.size() < 2)
    throw UserError(
        {list.name(), "has " + std::to_string(choices.size()) + " choices", "give two or more"});
  return choices;
}

/// Appends the questions of an article of RACE.
void add_article(const JsonCursor& json, const std::string& where, LabelledTexts& texts) {
  const std::string article = cleaned(json["article"].text());
  const std::vector<JsonCursor> questions = json["questions"].elements(),
                                options = json["options"].elements(),
                                answers = json["answers"].elements();
  if (options.size() != questions.size() || answers.size() != questions.size())
    throw UserError({where,
                     std::to_string(questions.size()) + " questions, " +
                         std::to_string(options.size()) + " lists of options and " +
                         std::to_string(answers.size()) + " answers",
                     "give as many of each"});
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string question = questions[i].text();
    LabelledText text{.text = article,
                      .choices = choices_of(options[i]),
                      .choices_come_first = true,
                      .label = label_of(answers[i]),
                      .where = where};
    const bool has_blank = question.find('_') != std::string::npos;  // which the answer fills
    for (std::string& choice : text.choices)
      choice =
          cleaned(has_blank ? escaped_text(question, {{'_', choice}}) : question + " " + choice);
    texts.push_back(std::move(text));
  }
}

void add_record(const JsonCursor& json, const std::string& where, FinetuneTask task,
                LabelledTexts& texts) {
  if (ranks_choices(task) && json.find("questions")) return add_article(json, where, texts);
  LabelledText text{.where = where};
  if (ranks_choices(task)) {
    text.text = text_of(json.find("question") ? json["question"] : json["text"]);
    text.choices = choices_of(json["choices"]);
  } else {
    const auto* names = std::ranges::find_if(
        kTextNames, [&](const auto& of) { return json.find(of.first).has_value(); });
    if (names == kTextNames.end())
      throw UserError({where, "has no text",
                       R"(write {"text": …, "label": …}, or "sentence1" and "sentence2")"});
    text.text = text_of(json[names->first]);
    if (const auto second = json.find_given(names->second)) text.second = text_of(*second);
  }
  text.label = label_of(json["label"]);
  texts.push_back(std::move(text));
}

LabelledTexts read_lines(const fs::path& path, FinetuneTask task) {
  LabelledTexts texts;
  for_each_line(path, [&](std::string_view line, const std::string& where) {
    add_record(JsonCursor(parse_json(line, where), where), where, task, texts);
  });
  return texts;
}

/// Returns the number that a label is; nullopt for another text.
std::optional<std::int64_t> number_of(const std::string& label) {
  return exact_number<std::int64_t>(label);
}

[[noreturn]] void refuse_label(const LabelledText& text, const std::string& fix) {
  throw UserError({text.where, "the label is " + text.label, fix});
}

/// Numbers the choices of all texts, which must have equally many.
void number_choices(LabelledTexts& texts, std::int64_t& num_choices) {
  for (LabelledText& text : texts) {
    const auto count = std::ssize(text.choices);
    if (num_choices == 1) num_choices = count;
    if (num_choices != count)
      throw UserError({text.where,
                       "has " + std::to_string(count) + " choices, and samples before it have " +
                           std::to_string(num_choices),
                       "give every sample as many"});
    const bool is_letter = text.label.size() == 1 && text.label[0] >= 'A' && text.label[0] <= 'Z';
    text.number = is_letter ? text.label[0] - 'A' : number_of(text.label).value_or(-1);
    if (text.number < 0 || text.number >= count)
      refuse_label(text, "give the number of a choice from 0, or its letter from A");
  }
}

}  // namespace

LabelledTexts read_labelled_texts(const fs::path& path, FinetuneTask task,
                                  std::vector<std::string>& warnings) {
  LabelledTexts texts;
  if (fs::is_directory(path)) {
    if (!ranks_choices(task))
      throw UserError({path.string() + " is a folder", "", "name the files in it"});
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".txt") files.push_back(entry.path());
    std::ranges::sort(files);
    for (const fs::path& file : files)
      std::ranges::move(read_lines(file, task), std::back_inserter(texts));
  } else if (path.extension() == ".tsv") {
    if (ranks_choices(task))
      throw UserError({path.string() + " is a table", "", "give choices as JSON lines"});
    texts = read_table(path, task, warnings);
  } else {
    texts = read_lines(path, task);
  }
  if (texts.empty())
    throw UserError({path.string(), "holds no labelled text",
                     fs::is_directory(path) ? "name a folder with .txt files, such as train/high"
                                            : "write one JSON object a line"});
  return texts;
}

LabelledData read_labelled_data(const DataConfig& config) {
  const FinetuneTask task = config.task;
  LabelledData data{.num_classes = ranks_choices(task) ? 1 : task == FinetuneTask::mnli ? 3 : 2};
  const DataSources sources = data_sources(config);
  if (sources.is_mock()) {
    if (ranks_choices(task)) data.num_choices = kRaceChoices;
    return data;
  }
  std::map<std::string, LabelledTexts> files;
  const auto read = [&](const Blend& blend) {
    for (const std::string& path : blend.prefixes)
      if (!files.contains(path)) files[path] = read_labelled_texts(path, task, data.warnings);
  };
  if (sources.blend) read(*sources.blend);
  for (std::size_t split = 0; sources.blend_per_split && split < 3; ++split)
    if (const auto& blend = (*sources.blend_per_split)[split]) read(*blend);
  bool are_numbers = true;
  std::set<std::string> labels;
  for (auto& [path, texts] : files) {
    if (ranks_choices(task)) number_choices(texts, data.num_choices);
    for (const LabelledText& text : texts) {
      are_numbers = are_numbers && number_of(text.label).has_value();
      if (labels.size() <= kMostClasses) labels.insert(text.label);
    }
  }
  if (!ranks_choices(task) && (task == FinetuneTask::mnli || !are_numbers)) {
    if (task == FinetuneTask::mnli) labels = {"contradiction", "entailment", "neutral"};
    data.classes.assign(labels.begin(), labels.end());
  }
  for (auto& [path, texts] : files) {
    for (LabelledText& text : texts) {
      if (ranks_choices(task)) break;
      const auto found = std::ranges::lower_bound(data.classes, text.label);
      const bool is_known = found != data.classes.end() && *found == text.label;
      text.number = !data.classes.empty() ? (is_known ? found - data.classes.begin() : -1)
                                          : number_of(text.label).value_or(-1);
      if (text.number < 0 || text.number >= (task == FinetuneTask::qqp ? 2 : kMostClasses))
        refuse_label(text, data.classes.empty()
                               ? "number classes from 0, and leave out what has none"
                               : "the task has " + joined_text(data.classes));
      data.num_classes = std::max(data.num_classes, text.number + 1);
    }
    data.files[path] = std::make_shared<const LabelledTexts>(std::move(texts));
  }
  if (task == FinetuneTask::classify)
    data.num_classes = std::max<std::int64_t>(data.num_classes, std::ssize(data.classes));
  return data;
}

LabelledTexts mock_labelled_texts(FinetuneTask task, std::int64_t num_classes,
                                  const Tokenizer& tokenizer) {
  RandomState random(0);
  const auto largest = static_cast<std::uint64_t>(tokenizer.vocab_size() - 1);
  const auto words = [&] {
    std::vector<std::int32_t> ids(1 + random.interval(30));
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random.interval(largest));
    return tokenizer.decode(ids);
  };
  const auto num_choices = static_cast<std::int64_t>(kRaceChoices);
  LabelledTexts texts(kMockTexts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    LabelledText& text = texts[i];
    text.text = words();
    if (ranks_choices(task))
      while (text.choices.size() < kRaceChoices) text.choices.push_back(words());
    else if (i % 2 == 1)
      text.second = words();
    text.number = static_cast<std::int64_t>(i) % (ranks_choices(task) ? num_choices : num_classes);
    text.where = "mock data";
  }
  return texts;
}

}  // namespace megatron
