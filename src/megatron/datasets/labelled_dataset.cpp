// Samples of labelled texts (labelled_texts.h).
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/labelled_texts.h"
#include "megatron/datasets/masked_dataset.h"
#include "megatron/datasets/random_state.h"

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

std::vector<SampleField> labelled_fields(std::int64_t length, std::int64_t num_choices) {
  const std::int64_t all = length * std::max<std::int64_t>(num_choices, 1);
  std::vector<SampleField> fields{
      {.name = "tokens", .shape = {all}, .holds_tokens = true},
      {.name = "types", .shape = {all}},
      {.name = "position_ids", .shape = {all}},
      {.name = "loss_mask", .type = std::vector<float>(), .shape = {all}},
      {.name = "document_ids",
       .type = std::vector<std::int32_t>(),
       .shape = {all},
       .per_position = false},
      {.name = "class", .per_position = false}};
  if (num_choices > 0)
    fields.push_back({.name = "choice_starts", .shape = {num_choices}, .per_position = false});
  return fields;
}

class LabelledDataset : public SourceDataset {
 public:
  LabelledDataset(std::shared_ptr<const LabelledTexts> texts, const std::string& name,
                  const SourcePart& part, const GptDatasetOptions& options)
      : SourceDataset(part, name,
                      labelled_fields(options.sequence_length, std::ssize(texts->front().choices))),
        texts_(std::move(texts)),
        options_(options),
        size_(part.num_samples.value_or(part.end - part.begin)) {
    if (count() == 0 && size_ > 0)
      throw UserError({name + ": the " + std::string(split_name(part_.split)) + " split is empty",
                       std::to_string(texts_->size()) + " labelled texts",
                       "give it a larger share with --split, or a file of its own"});
    if (options_.defer_index || size_ == 0) return;
    require_token(options_.masked.tokens.cls, "[CLS]", "labelled texts");
    require_token(options_.masked.tokens.sep, "[SEP]", "labelled texts");
    check_classes();
    for (std::int64_t epoch = 0; part_.split == Split::train && epoch * count() < size_; ++epoch) {
      std::vector<std::uint32_t>& order = orders_.emplace_back(static_cast<std::size_t>(count()));
      std::iota(order.begin(), order.end(), 0);
      const std::array<std::uint32_t, 2> seed{static_cast<std::uint32_t>(options_.seed),
                                              static_cast<std::uint32_t>(epoch)};
      RandomState(seed).shuffle(std::span(order));
    }
  }

  std::int64_t size() const override { return size_; }
  Sample sample(std::int64_t index) const override;
  std::string describe(std::int64_t index) const override {
    return text_of(index).where + ", " + SourceDataset::describe(index);
  }
  std::vector<CorpusShare> shares(std::int64_t samples) const override {
    return {
        {.name = part_.path.value_or("mock data"),
         .documents = count(),
         .samples = samples,
         .epochs = count() == 0 ? 0 : static_cast<double>(samples) / static_cast<double>(count())}};
  }
  JsonText identifiers() const override {
    return to_json(sample_description("LabelledDataset", part_, options_));
  }
  std::filesystem::path index_file() const override { return part_.path.value_or(""); }

 private:
  std::int64_t count() const { return part_.end - part_.begin; }
  const LabelledText& text_of(std::int64_t index) const {
    std::int64_t place = index % count();
    if (!orders_.empty())
      place = orders_[static_cast<std::size_t>(index / count())][static_cast<std::size_t>(place)];
    return (*texts_)[static_cast<std::size_t>(part_.begin + place)];
  }
  void check_classes() const {
    const std::int64_t num_classes = options_.masked.num_classes;
    if (num_classes < 2) return;
    for (std::int64_t i = part_.begin; i < part_.end; ++i) {
      const LabelledText& text = (*texts_)[static_cast<std::size_t>(i)];
      if (text.number >= num_classes)
        throw UserError({text.where,
                         "the label " + text.label + " is class " + std::to_string(text.number),
                         "the model has " + std::to_string(num_classes) +
                             " classes; raise --num-classes, or finetune a model without classes"});
    }
  }
  /// Appends [CLS] first [SEP] or [CLS] first [SEP] second [SEP] and padding, as Megatron-LM's
  /// build_tokens_types_paddings_from_ids() does. Returns the number of tokens before the padding.
  std::int64_t append(const std::string& first, const std::string& second, bool is_choice_first,
                      Ids& tokens, Ids& types) const;

  const std::shared_ptr<const LabelledTexts> texts_;
  const GptDatasetOptions options_;
  const std::int64_t size_;
  std::vector<std::vector<std::uint32_t>> orders_;  ///< of each epoch of training
};

std::int64_t LabelledDataset::append(const std::string& first, const std::string& second,
                                     bool is_choice_first, Ids& tokens, Ids& types) const {
  const MaskingTokens& special = options_.masked.tokens;
  const auto length = static_cast<std::size_t>(options_.sequence_length), begin = tokens.size();
  auto ids = special.tokenizer->encode_fragment(first);
  if (is_choice_first && ids.size() > kMostChoiceTokens) ids.resize(kMostChoiceTokens);
  tokens.push_back(special.cls);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  tokens.push_back(special.sep);
  types.resize(std::min(tokens.size(), begin + length), 0);
  if (!second.empty()) {
    ids = special.tokenizer->encode_fragment(second);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    tokens.push_back(special.sep);
  }
  if (tokens.size() > begin + length) {
    tokens.resize(begin + length);
    tokens.back() = special.sep;
  }
  const bool has_second_type = !second.empty() && options_.masked.num_tokentypes > 1;
  types.resize(tokens.size(), has_second_type ? 1 : 0);
  if (!second.empty()) types.back() = has_second_type ? 1 : 0;
  const auto size = static_cast<std::int64_t>(tokens.size() - begin);
  tokens.resize(begin + length, std::max<std::int64_t>(special.pad, 0));
  types.resize(begin + length, 0);
  return size;
}

Sample LabelledDataset::sample(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
  const LabelledText& text = text_of(index);
  const std::int64_t length = options_.sequence_length;
  Ids tokens, types, positions, starts, padding;
  std::vector<std::int32_t> documents;
  std::int64_t used = 0;
  const auto add = [&](const std::string& first, const std::string& second) {
    starts.push_back(std::ssize(tokens));
    used = append(first, second, text.choices_come_first, tokens, types);
    for (std::int64_t i = 0; i < length; ++i) {
      positions.push_back(i);
      documents.push_back(static_cast<std::int32_t>(2 * std::ssize(starts) + (i < used ? 0 : 1)));
    }
  };
  for (const std::string& choice : text.choices) {
    if (text.choices_come_first)
      add(choice, text.text);
    else
      add(text.text, choice);
  }
  if (text.choices.empty()) {
    add(text.text, text.second);
    for (std::int64_t i = used; i < length; ++i) padding.push_back(i);
  }
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
    std::shared_ptr<const LabelledTexts> texts, const std::string& name, const SourcePart& part,
    const GptDatasetOptions& options) {
  return std::make_shared<const LabelledDataset>(std::move(texts), name, part, options);
}

}  // namespace megatron
