#include "megatron/datasets/labelled_texts.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/base/words.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/masked_dataset.h"
#include "megatron/datasets/random_state.h"
#include "megatron/datasets/text_chunks.h"
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
  text.others_come_first = true;
  const std::vector<JsonCursor> questions = json["questions"].elements(),
                                options = json["options"].elements(),
                                answers = json["answers"].elements();
  if (options.size() != questions.size() || answers.size() != questions.size())
    throw UserError({text.where, "has not as many questions as options and answers", ""});
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string question = questions[i].text();
    const bool has_blank = question.find('_') != std::string::npos;
    text.others.clear();
    for (const JsonCursor& option : options[i].elements())
      text.others.push_back(has_blank ? escaped_text(question, {{'_', option.text()}})
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
      text.others.push_back(choice.text());
  } else if (json.find_given("choices")) {
    throw UserError({text.where, "has choices", "finetune with --task rank"});
  }
  for (const auto& [first, second] : kTextNames) {
    const auto found = json.find_given(first), other = json.find_given(second);
    if (!text.text.empty() || !found) continue;
    text.text = found->text();
    if (other) text.others = {other->text()};
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
    line = replace_invalid_utf8(line).value_or(line);
    if (line.ends_with('\r')) line.pop_back();
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (trim(line).empty()) continue;  // a row of a table may begin or end with an empty cell
    const std::vector<std::string> cells =
        is_table ? split_at(line, '\t') : std::vector<std::string>();
    if (is_table && names.empty()) {
      names = cells;
      continue;
    }
    Json record = is_table ? Json::object() : parse_json(trim(line), text.where);
    for (std::size_t i = 0; cells.size() == names.size() && i < cells.size(); ++i)
      if (!names[i].empty()) record[names[i]] = cells[i];
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

/// Numbers a text by its label, of which data.classes has the names, if they are no numbers.
void number_text(bool has_choices, LabelledData& data, LabelledText& text) {
  const std::string& label = text.label;
  const auto place = std::ranges::lower_bound(data.classes, label);
  if (has_choices && label.size() == 1 && label[0] >= 'A')
    text.number = label[0] - 'A';
  else if (place != data.classes.end() && *place == label)
    text.number = place - data.classes.begin();
  else
    text.number = data.classes.empty() ? exact_number<std::int64_t>(label).value_or(-1) : -1;
  const std::string fix = has_choices ? "give the number of a choice from 0, or its letter from A"
                          : data.classes.empty() ? "number classes from 0"
                                                 : "the classes are " + joined_text(data.classes);
  if (text.number < 0 || text.number >= (has_choices ? data.num_choices : kMostClasses))
    throw UserError({text.where, "the label is '" + label + "'", fix});
  if (!has_choices) data.num_classes = std::max(data.num_classes, text.number + 1);
  if (has_choices && (std::ssize(text.others) != data.num_choices || !text.has_choices()))
    throw UserError({text.where, "has " + std::to_string(text.others.size()) + " choices",
                     "give two or more, and all samples as many as the first, which has " +
                         std::to_string(data.num_choices)});
}

/// The most tokens of a question with an answer; Megatron-LM cuts those of RACE there.
constexpr std::size_t kMostChoiceTokens = 128, kAllTokens = std::numeric_limits<std::size_t>::max();

std::vector<SampleField> labelled_fields(std::int64_t length, const LabelledText& text) {
  const std::int64_t choices = text.has_choices() ? std::ssize(text.others) : 1,
                     all = length * choices;
  std::vector<SampleField> fields{{.name = "tokens", .shape = {all}, .holds_tokens = true},
                                  {.name = "types", .shape = {all}},
                                  {.name = "position_ids", .shape = {all}},
                                  {"loss_mask", std::vector<float>(), {all}},
                                  {"document_ids", std::vector<std::int32_t>(), {all}, false},
                                  {.name = "class", .per_position = false}};
  if (choices > 1)
    fields.push_back({.name = "choice_starts", .shape = {choices}, .per_position = false});
  return fields;
}

class LabelledDataset : public SourceDataset {
 public:
  LabelledDataset(std::shared_ptr<const LabelledTexts> texts, const SourcePart& part,
                  const GptDatasetOptions& options)
      : SourceDataset(part, part.path.value_or("mock data"),
                      labelled_fields(options.sequence_length, texts->front())),
        texts_(std::move(texts)),
        options_(options),
        count_(part.end - part.begin),
        size_(part.num_samples.value_or(count_)) {
    if (size_ == 0 || options_.defer_index) return;
    if (count_ == 0)
      throw UserError({part.path.value_or("mock data") + ": a split has no labelled text", "",
                       "give it a larger share with --split, or a file of its own"});
    require_token(options_.masked.tokens.cls, "[CLS]", "labelled texts");
    require_token(options_.masked.tokens.sep, "[SEP]", "labelled texts");
    for (std::int64_t epoch = 0; part.split == Split::train && epoch * count_ < size_; ++epoch) {
      std::vector<std::uint32_t>& order = orders_.emplace_back(static_cast<std::size_t>(count_));
      std::iota(order.begin(), order.end(), 0U);
      const std::uint32_t seed[] = {static_cast<std::uint32_t>(options_.seed),
                                    static_cast<std::uint32_t>(epoch)};
      RandomState(std::span(seed)).shuffle(std::span(order));
    }
  }

  std::int64_t size() const override { return size_; }
  Sample sample(std::int64_t index) const override;
  std::vector<CorpusShare> shares(std::int64_t samples) const override {
    const double epochs = static_cast<double>(samples) / static_cast<double>(count_);
    return {{.name = part_.path.value_or("mock data"),
             .documents = count_,
             .samples = samples,
             .epochs = epochs}};
  }
  JsonText identifiers() const override {
    return to_json(sample_description("LabelledDataset", part_, options_));
  }

 private:
  const std::shared_ptr<const LabelledTexts> texts_;
  const GptDatasetOptions options_;
  const std::int64_t count_, size_;
  std::vector<std::vector<std::uint32_t>> orders_;  ///< of each epoch of training
};

/// Each sequence is that of Megatron-LM's build_tokens_types_paddings_from_ids().
Sample LabelledDataset::sample(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
  const auto epoch = static_cast<std::size_t>(index / count_),
             place = static_cast<std::size_t>(index % count_);
  const LabelledText& text = (*texts_)[static_cast<std::size_t>(part_.begin) +
                                       (orders_.empty() ? place : orders_[epoch][place])];
  if (const std::int64_t most = options_.masked.num_classes; most > 1 && text.number >= most)
    throw UserError({text.where,
                     "the label '" + text.label + "' is class " + std::to_string(text.number),
                     "the model has " + std::to_string(most) +
                         " classes: raise --num-classes, or finetune a model without classes"});
  const MaskingTokens& special = options_.masked.tokens;
  std::vector<std::int64_t> tokens, types, positions, starts, padding;
  std::vector<std::int32_t> documents;
  const auto append = [&](const std::string& part, std::size_t most) {
    auto ids = special.tokenizer->encode_fragment(part);
    ids.resize(std::min(ids.size(), most));
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    tokens.push_back(special.sep);
  };
  const bool is_turned = text.others_come_first;
  for (std::size_t i = 0; i < std::max<std::size_t>(text.others.size(), 1); ++i) {
    const std::string other = text.others.empty() ? "" : text.others[i],
                      &first = is_turned ? other : text.text,
                      &second = is_turned ? text.text : other;
    const std::size_t begin = tokens.size(),
                      end = begin + static_cast<std::size_t>(options_.sequence_length);
    starts.push_back(static_cast<std::int64_t>(begin));
    tokens.push_back(special.cls);
    append(first, is_turned ? kMostChoiceTokens : kAllTokens);
    types.resize(std::min(tokens.size(), end), 0);
    if (!second.empty()) append(second, kAllTokens);
    tokens.resize(std::min(tokens.size(), end));
    tokens.back() = special.sep;
    const int type = !second.empty() && options_.masked.num_tokentypes > 1 ? 1 : 0;
    types.resize(tokens.size(), type);
    types.back() = type;
    for (std::size_t at = begin; at < end; ++at) {
      positions.push_back(static_cast<std::int64_t>(at - begin));
      documents.push_back(static_cast<std::int32_t>(2 * i + (at < tokens.size() ? 0 : 1)));
      if (at >= tokens.size() && !text.has_choices()) padding.push_back(positions.back());
    }
    tokens.resize(end, std::max<std::int64_t>(special.pad, 0));
    types.resize(end, 0);
  }
  std::vector<float> loss_mask(tokens.size(), 0.0f);
  loss_mask.front() = 1;
  Sample sample{{fields(), std::move(tokens), std::move(types), std::move(positions),
                 std::move(loss_mask), std::move(documents), std::vector{text.number}},
                {0},
                std::move(padding)};
  if (text.has_choices()) sample.values.back() = std::move(starts);
  return sample;
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
    data.num_choices = std::ssize(files.begin()->second.front().others);
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
    text.others.resize(static_cast<std::size_t>(num_choices > 1 ? num_choices : i % 2));
    std::ranges::generate(text.others, words);
    text.number = i++ % std::max(num_classes, num_choices);
    text.where = "mock data";
  }
  return texts;
}

std::shared_ptr<const SourceDataset> make_labelled_dataset(
    std::shared_ptr<const LabelledTexts> texts, const SourcePart& part,
    const GptDatasetOptions& options) {
  return std::make_shared<const LabelledDataset>(std::move(texts), part, options);
}

}  // namespace megatron
