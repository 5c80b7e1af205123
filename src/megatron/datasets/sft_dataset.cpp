#include "megatron/datasets/sft_dataset.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

SftDataset::SftDataset(std::shared_ptr<const ConversationFile> file, SourcePart part,
                       const SftDatasetOptions& options, std::shared_ptr<const PromptFormat> format)
    : file_(std::move(file)),
      part_(std::move(part)),
      options_(options),
      format_(std::move(format)),
      size_(part_.num_samples.value_or(part_.end - part_.begin)) {
  if (options_.sequence_length < 1)
    throw UserError(
        {"--seq-length must be at least 1", std::to_string(options_.sequence_length), ""});
  if (part_.begin == part_.end && part_.num_samples != 0) {
    const std::string name(split_name(part_.split));
    throw UserError({file_->path().string() + ": the " + name + " split has no conversations",
                     "the file has " + std::to_string(file_->size()) + " lines",
                     "give the " + name +
                         " split a larger share with --split, or request no "
                         "samples of it (--eval-iters 0)"});
  }
}

void SftDataset::pad_to(std::size_t length, Packed& packed) const {
  packed.tokens.resize(length, format_->pad());
  packed.targets.resize(length, format_->pad());
  std::int64_t position = packed.positions.empty() ? 0 : packed.positions.back() + 1;
  while (packed.positions.size() < length) packed.positions.push_back(position++);
}

SftDataset::Packed SftDataset::pack(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  const auto multiple = static_cast<std::size_t>(options_.row_multiple);
  Packed packed;
  for (const Conversation& conversation : split_conversations(file_->messages(line(index)))) {
    const PromptFormat::Tokens tokens =
        format_->tokenize(conversation, file_->describe(line(index)));
    const std::size_t begin = packed.tokens.size();
    packed.tokens.insert(packed.tokens.end(), tokens.ids.begin(), tokens.ids.end());
    packed.targets.insert(packed.targets.end(), tokens.targets.begin(), tokens.targets.end());
    for (std::size_t i = 0; i < tokens.ids.size(); ++i)
      packed.positions.push_back(static_cast<std::int64_t>(i));
    pad_to((packed.tokens.size() + multiple - 1) / multiple * multiple, packed);
    if (begin < length && packed.tokens.size() > begin)
      packed.starts.push_back(static_cast<std::int64_t>(begin));
    if (packed.tokens.size() > length) {  // the label behind a cut is not trained on
      packed.tokens.resize(length);
      packed.targets.resize(length);
      packed.positions.resize(length);
      break;
    }
  }
  if (packed.starts.empty()) packed.starts = {0};
  pad_to(length + 1, packed);
  return packed;
}

Sample SftDataset::sample(std::int64_t index) const {
  Packed packed = pack(index);
  Sample sample;
  sample.labels.assign(packed.targets.begin() + 1, packed.targets.end());
  for (std::int64_t& label : sample.labels) {
    const bool has_loss = label != format_->pad() && label != kIgnoredLabel;
    sample.loss_mask.push_back(has_loss ? 1.0f : 0.0f);
    if (!has_loss) label = 0;
  }
  packed.tokens.pop_back();
  packed.positions.pop_back();
  sample.tokens = std::move(packed.tokens);
  sample.position_ids = std::move(packed.positions);
  sample.document_starts = std::move(packed.starts);
  return sample;
}

std::vector<std::int64_t> SftDataset::text(std::int64_t index) const { return pack(index).tokens; }

std::string SftDataset::describe(std::int64_t index) const {
  return file_->describe(line(index)) + ", " + std::string(split_name(part_.split)) + " sample " +
         std::to_string(index);
}

std::vector<CorpusShare> SftDataset::shares(std::int64_t samples) const {
  const std::int64_t lines = part_.end - part_.begin;
  CorpusShare share{.name = file_->path().string(), .documents = lines, .samples = samples};
  if (lines > 0) share.epochs = static_cast<double>(samples) / static_cast<double>(lines);
  return {share};
}

OrderedJson SftDataset::identifiers() const {
  return to_json(SampleDescription{.class_name = "SFTDataset",
                                   .path = file_->path().string(),
                                   .num_samples = part_.num_samples,
                                   .split = part_.split,
                                   .seed = options_.seed,
                                   .sequence_length = options_.sequence_length,
                                   .split_text = options_.split_text,
                                   .split_matrix = options_.split_matrix,
                                   .tokenizer = options_.tokenizer});
}

}  // namespace megatron
