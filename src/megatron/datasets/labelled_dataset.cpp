// Samples of labelled texts (labelled_texts.h).
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/labelled_texts.h"
#include "megatron/datasets/masked_dataset.h"
#include "megatron/datasets/random_state.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::size_t kMostChoiceTokens = 128;  ///< of a question of RACE with an answer

std::vector<SampleField> labelled_fields(std::int64_t length, std::int64_t num_choices) {
  const std::int64_t all = length * std::max<std::int64_t>(num_choices, 1);
  std::vector<SampleField> fields{{.name = "tokens", .shape = {all}, .holds_tokens = true},
                                  {.name = "types", .shape = {all}},
                                  {.name = "position_ids", .shape = {all}},
                                  {"loss_mask", std::vector<float>(), {all}},
                                  {"document_ids", std::vector<std::int32_t>(), {all}, false},
                                  {.name = "class", .per_position = false}};
  if (num_choices > 0)
    fields.push_back({.name = "choice_starts", .shape = {num_choices}, .per_position = false});
  return fields;
}

class LabelledDataset : public SourceDataset {
 public:
  LabelledDataset(std::shared_ptr<const LabelledTexts> texts, const SourcePart& part,
                  const GptDatasetOptions& options)
      : SourceDataset(part, part.path.value_or("mock data"),
                      labelled_fields(options.sequence_length, std::ssize(texts->front().choices))),
        texts_(std::move(texts)),
        options_(options),
        size_(part.num_samples.value_or(count())) {
    if (size_ == 0 || options_.defer_index) return;
    if (count() == 0)
      throw UserError({*part.path + ": the " + std::string(split_name(part.split)) +
                           " split has no labelled text",
                       "", "give it a larger share with --split, or a file of its own"});
    require_token(options_.masked.tokens.cls, "[CLS]", "labelled texts");
    require_token(options_.masked.tokens.sep, "[SEP]", "labelled texts");
    for (std::int64_t epoch = 0; part.split == Split::train && epoch * count() < size_; ++epoch) {
      std::vector<std::uint32_t>& order = orders_.emplace_back(static_cast<std::size_t>(count()));
      std::iota(order.begin(), order.end(), 0U);
      const std::array<std::uint32_t, 2> seed{static_cast<std::uint32_t>(options_.seed),
                                              static_cast<std::uint32_t>(epoch)};
      RandomState(seed).shuffle(std::span(order));
    }
  }

  std::int64_t size() const override { return size_; }
  Sample sample(std::int64_t index) const override;
  std::vector<CorpusShare> shares(std::int64_t samples) const override {
    return {{.name = part_.path.value_or("mock data"),
             .documents = count(),
             .samples = samples,
             .epochs = static_cast<double>(samples) /
                       static_cast<double>(std::max<std::int64_t>(count(), 1))}};
  }
  JsonText identifiers() const override {
    return to_json(sample_description("LabelledDataset", part_, options_));
  }
  std::filesystem::path index_file() const override { return part_.path.value_or(""); }

 private:
  std::int64_t count() const { return part_.end - part_.begin; }
  /// Appends [CLS] first [SEP] or [CLS] first [SEP] second [SEP] and padding, as Megatron-LM's
  /// build_tokens_types_paddings_from_ids() does. Returns the number of tokens before the padding.
  std::int64_t append(const std::string& first, const std::string& second,
                      std::size_t most_of_first, Ids& tokens, Ids& types) const;

  const std::shared_ptr<const LabelledTexts> texts_;
  const GptDatasetOptions options_;
  const std::int64_t size_;
  std::vector<std::vector<std::uint32_t>> orders_;  ///< of each epoch of training
};

std::int64_t LabelledDataset::append(const std::string& first, const std::string& second,
                                     std::size_t most_of_first, Ids& tokens, Ids& types) const {
  const MaskingTokens& special = options_.masked.tokens;
  const auto end = tokens.size() + static_cast<std::size_t>(options_.sequence_length);
  auto ids = special.tokenizer->encode_fragment(first);
  ids.resize(std::min(ids.size(), most_of_first));
  tokens.push_back(special.cls);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  tokens.push_back(special.sep);
  types.resize(std::min(tokens.size(), end), 0);
  if (!second.empty()) {
    ids = special.tokenizer->encode_fragment(second);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    tokens.push_back(special.sep);
  }
  tokens.resize(std::min(tokens.size(), end));
  tokens.back() = special.sep;
  const std::int64_t type = !second.empty() && options_.masked.num_tokentypes > 1 ? 1 : 0;
  types.resize(tokens.size(), type);
  types.back() = type;
  const auto padding = static_cast<std::int64_t>(end - tokens.size());
  tokens.resize(end, std::max<std::int64_t>(special.pad, 0));
  types.resize(end, 0);
  return options_.sequence_length - padding;
}

Sample LabelledDataset::sample(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
  const auto epoch = static_cast<std::size_t>(index / count()),
             place = static_cast<std::size_t>(index % count());
  const LabelledText& text = (*texts_)[static_cast<std::size_t>(part_.begin) +
                                       (orders_.empty() ? place : orders_[epoch][place])];
  if (const std::int64_t most = options_.masked.num_classes; most > 1 && text.number >= most)
    throw UserError({text.where,
                     "the label '" + text.label + "' is class " + std::to_string(text.number),
                     "the model has " + std::to_string(most) +
                         " classes: raise --num-classes, or finetune a model without classes"});
  Ids tokens, types, positions, starts, padding;
  std::vector<std::int32_t> documents;
  const std::int64_t length = options_.sequence_length;
  const auto add = [&](const std::string& first, const std::string& second, std::size_t most) {
    starts.push_back(std::ssize(tokens));
    const std::int64_t used = append(first, second, most, tokens, types);
    for (std::int64_t i = 0; i < length; ++i) {
      positions.push_back(i);
      documents.push_back(static_cast<std::int32_t>(2 * std::ssize(starts) + (i < used ? 0 : 1)));
      if (i >= used && text.choices.empty()) padding.push_back(i);
    }
  };
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  for (const std::string& choice : text.choices) {
    if (text.choices_come_first)
      add(choice, text.text, kMostChoiceTokens);
    else
      add(text.text, choice, kAll);
  }
  if (text.choices.empty()) add(text.text, text.second, kAll);
  std::vector<float> loss_mask(tokens.size(), 0.0f);
  loss_mask.front() = 1;
  Sample sample{{fields(), std::move(tokens), std::move(types), std::move(positions),
                 std::move(loss_mask), std::move(documents), Ids{text.number}},
                {0},
                std::move(padding)};
  if (!text.choices.empty()) sample.values.back() = std::move(starts);
  return sample;
}

}  // namespace

std::shared_ptr<const SourceDataset> make_labelled_dataset(
    std::shared_ptr<const LabelledTexts> texts, const SourcePart& part,
    const GptDatasetOptions& options) {
  return std::make_shared<const LabelledDataset>(std::move(texts), part, options);
}

}  // namespace megatron
