#include "megatron/datasets/sft_dataset.h"

#include <numeric>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {

namespace {

/// Returns the files that the number of tokens of a conversation depends on.
std::vector<fs::path> length_sources(const fs::path& conversations,
                                     const SftDatasetOptions& options) {
  std::vector<fs::path> files{conversations};
  std::error_code ignored;
  for (const fs::path& file : options.tokenizer_files)
    if (fs::is_regular_file(file, ignored)) files.push_back(file);
  return files;
}

std::uint64_t checksum_of_files(const std::vector<fs::path>& files) {
  std::string checksums;
  for (const fs::path& file : files) checksums += checksum_hex(checksum(MappedFile(file).bytes()));
  return checksum(checksums);
}

}  // namespace

SftDataset::SftDataset(std::shared_ptr<const ConversationFile> file, SourcePart part,
                       const SftDatasetOptions& options, std::shared_ptr<const PromptFormat> format,
                       std::vector<std::string>& warnings)
    : SourceDataset(std::move(part), file->path().string(), causal_fields(options.sequence_length)),
      file_(std::move(file)),
      options_(options),
      format_(std::move(format)) {
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
  if (options_.packing != PackingStrategy::line && part_.num_samples != 0) {
    lengths_ = load_lengths(warnings);
    packed_ = pack_conversations(lengths_, options_.packing, layout());
    if (packed_.rows.size() == 0)
      throw UserError({file_->path().string() + ": the conversations of the " +
                           std::string(split_name(part_.split)) + " split have no tokens",
                       std::to_string(num_lines()) + " lines", ""});
  }
  size_ = part_.num_samples.value_or(samples_per_epoch());
}

JsonText SftDataset::description() const {
  SampleDescription samples = sample_description("SFTDataset", part_, options_);
  samples.path = file_->path().string();
  return to_json(samples);
}

IndexCacheEntry SftDataset::cache_entry() const {
  if (!options_.cache) return {};
  JsonText key = description();
  for (const char* unrelated : {"num_samples", "random_seed", "sequence_length"})
    key.erase(unrelated);
  key["prompt_format"] = options_.prompt_format;
  key["tokenizer_flags"] = options_.tokenizer_flags;
  const fs::path folder = options_.cache_folder.empty()
                              ? fs::path(file_->path().string() + ".cache") / "SFTDataset_lengths"
                              : fs::path(options_.cache_folder);
  const std::vector<fs::path> files = length_sources(file_->path(), options_);
  return {.folder = folder,
          .class_name = "SFTDataset",
          .split = std::string(split_name(part_.split)),
          .description = python_json_dumps(key),
          .array_names = {"line_begins", "conversation_lengths", "conversation_unlabeled"},
          .sources = {.files = files, .checksum = [files] { return checksum_of_files(files); }}};
}

ConversationLengths SftDataset::load_lengths(std::vector<std::string>& warnings) const {
  const IndexArrays arrays = load_or_build(
      cache_entry(),
      [&] {
        std::vector<std::int64_t> lines(static_cast<std::size_t>(num_lines()));
        std::iota(lines.begin(), lines.end(), part_.begin);
        const ConversationLengths lengths = count_tokens(*file_, lines, *format_);
        return IndexArrays{lengths.line_begins, lengths.lengths, lengths.unlabeled};
      },
      [&](const IndexArrays& loaded) {
        return loaded[0].size() == num_lines() + 1 &&
               loaded[0].at(num_lines()) == loaded[1].size() &&
               loaded[1].size() == loaded[2].size();
      },
      warnings);
  return {arrays[0], arrays[1], arrays[2]};
}

std::int64_t SftDataset::samples_per_epoch() const {
  return options_.packing == PackingStrategy::line ? num_lines()
                                                   : static_cast<std::int64_t>(packed_.rows.size());
}

std::int64_t SftDataset::line(std::int64_t index) const {
  const std::int64_t in_epoch = index % samples_per_epoch();
  if (options_.packing == PackingStrategy::line) return part_.begin + in_epoch;
  return part_.begin +
         packed_.pieces[packed_.rows.row(static_cast<std::size_t>(in_epoch)).front()].line;
}

void SftDataset::pad_to(std::size_t length, Packed& packed) const {
  packed.tokens.resize(length, format_->pad());
  packed.targets.resize(length, kIgnoredLabel);
  std::int64_t position = packed.positions.empty() ? 0 : packed.positions.back() + 1;
  while (packed.positions.size() < length) {
    packed.padding.push_back(static_cast<std::int64_t>(packed.positions.size()));
    packed.positions.push_back(position++);
  }
}

PromptFormat::Tokens SftDataset::read_piece(const ConversationPiece& piece) const {
  const std::int64_t line = part_.begin + piece.line;
  const std::string where = file_->describe(line);
  const auto number = static_cast<std::size_t>(piece.conversation);
  const std::vector<Conversation> conversations = split_conversations(file_->messages(line));
  PromptFormat::Tokens tokens;
  if (number < conversations.size()) tokens = format_->tokenize(conversations[number], where);
  if (tokens.ids.size() != static_cast<std::size_t>(piece.whole_tokens))
    throw UserError({where + ": conversation " + std::to_string(number + 1) + " has " +
                         std::to_string(tokens.ids.size()) + " tokens",
                     "it had " + std::to_string(piece.whole_tokens) + " when it was packed",
                     "do not change conversations and tokenizer while they are used" +
                         (options_.cache ? "; if they were replaced before, delete the cached "
                                           "lengths in " +
                                               cache_entry().folder.string()
                                         : std::string())});
  const auto cut = [&](std::vector<std::int64_t>& values) {
    values.erase(values.begin(), values.begin() + piece.begin);
    values.resize(static_cast<std::size_t>(piece.tokens));
  };
  cut(tokens.ids);
  cut(tokens.targets);
  // The token before a part is not in its sequence, so nothing can predict the part's first token.
  if (piece.begin > 0) tokens.targets.front() = kIgnoredLabel;
  return tokens;
}

/// Appends a conversation. Returns whether the sequence has room for another.
bool SftDataset::append(const PromptFormat::Tokens& tokens, Packed& packed) const {
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  const auto multiple = static_cast<std::size_t>(options_.row_multiple);
  const std::size_t begin = packed.tokens.size();
  packed.tokens.insert(packed.tokens.end(), tokens.ids.begin(), tokens.ids.end());
  packed.targets.insert(packed.targets.end(), tokens.targets.begin(), tokens.targets.end());
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    packed.positions.push_back(static_cast<std::int64_t>(i));
  pad_to((packed.tokens.size() + multiple - 1) / multiple * multiple, packed);
  if (begin < length && packed.tokens.size() > begin)
    packed.starts.push_back(static_cast<std::int64_t>(begin));
  if (packed.tokens.size() <= length) return true;
  packed.tokens.resize(length);  // the label behind a cut is not trained on
  packed.targets.resize(length);
  packed.positions.resize(length);
  return false;
}

SftDataset::Packed SftDataset::pack(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  Packed packed;
  if (options_.packing == PackingStrategy::line) {
    const std::int64_t number = line(index);
    for (const Conversation& conversation : split_conversations(file_->messages(number)))
      if (!append(format_->tokenize(conversation, file_->describe(number)), packed)) break;
  } else {
    const auto row = static_cast<std::size_t>(index % samples_per_epoch());
    for (const std::uint32_t piece : packed_.rows.row(row))
      append(read_piece(packed_.pieces[piece]), packed);
  }
  if (packed.starts.empty()) packed.starts = {0};
  pad_to(static_cast<std::size_t>(options_.sequence_length) + 1, packed);
  return packed;
}

Sample SftDataset::sample(std::int64_t index) const {
  Packed packed = pack(index);
  std::vector<std::int64_t> labels(packed.targets.begin() + 1, packed.targets.end());
  std::vector<float> loss_mask;
  for (std::int64_t& label : labels) {
    const bool has_loss = label != kIgnoredLabel;
    loss_mask.push_back(has_loss ? 1.0f : 0.0f);
    if (!has_loss) label = 0;
  }
  packed.tokens.pop_back();
  packed.positions.pop_back();
  std::erase_if(packed.padding, [&](auto at) { return at >= options_.sequence_length; });
  return {{fields(), std::move(packed.tokens), std::move(labels), std::move(packed.positions),
           std::move(loss_mask)},
          std::move(packed.starts),
          std::move(packed.padding)};
}

std::string SftDataset::describe(std::int64_t index) const {
  return file_->describe(line(index)) + ", " + std::string(split_name(part_.split)) + " sample " +
         std::to_string(index);
}

std::vector<CorpusShare> SftDataset::shares(std::int64_t samples) const {
  CorpusShare share{.name = file_->path().string(), .documents = num_lines(), .samples = samples};
  if (num_lines() == 0) return {share};
  ConversationLengths lengths = lengths_;
  bool is_whole = true;
  if (options_.packing == PackingStrategy::line) {
    // A part of the lines, at equal distances, so that the start of a run does not wait.
    is_whole = options_.report_lines == 0 || num_lines() <= options_.report_lines;
    const std::int64_t count = is_whole ? num_lines() : options_.report_lines;
    std::vector<std::int64_t> lines;
    for (std::int64_t i = 0; i < count; ++i) lines.push_back(part_.begin + i * num_lines() / count);
    lengths = count_tokens(*file_, lines, *format_);
  }
  for (const PackingStrategy strategy : kPackingStrategies) {
    share.packings.push_back(packing_share(lengths, strategy, layout()));
    if (strategy != options_.packing) continue;
    share.packings.back().is_used = true;
    share.unlabeled = share.packings.back().unlabeled;
  }
  share.conversations = lengths.lengths.size();
  if (is_whole) share.tokens = share.packings[0].tokens + share.packings[0].truncated;
  share.epochs = static_cast<double>(samples) / static_cast<double>(samples_per_epoch());
  return {share};
}

JsonText SftDataset::identifiers() const {
  JsonText json = description();
  if (options_.packing == PackingStrategy::line) return json;
  json["packing_strategy"] = std::string(packing_strategy_name(options_.packing));
  json["packed_sequences"] = samples_per_epoch();
  return json;
}

}  // namespace megatron
