#include "megatron/datasets/masked_dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json_text.h"

namespace megatron {
namespace {

struct SentenceIndexInput {
  UnalignedView<std::int32_t> lengths;          ///< tokens of every sentence of the source
  UnalignedView<std::int64_t> document_begins;  ///< first sentence of every document, then the
                                                ///< number of sentences
  std::int64_t begin = 0, end = 0;              ///< range of this split's documents
  std::optional<std::int64_t> num_samples;      ///< lower bound; nullopt: one epoch
  std::int64_t sequence_length = 0;             ///< without the tokens that samples add
  double short_sequence_probability = 0;        ///< probability of a shorter target length
  std::int32_t seed = 0;
  std::int64_t min_sentences = 1;  ///< per sample; documents with fewer are left out
};

constexpr std::int32_t kLongestSentence = 512;

struct Row {
  std::int64_t begin, end, target_length;
};

/// Cuts documents into samples of consecutive sentences, as megatron-core's BERT and T5 datasets
/// do: the same seed gives the same samples in the same order.
class SentenceIndexBuilder {
 public:
  explicit SentenceIndexBuilder(const SentenceIndexInput& input)
      : input_(input), random_(seed(input)) {
    if (input.short_sequence_probability > 0)
      short_ratio_ = std::llround(1.0 / input.short_sequence_probability);
  }

  std::vector<Row> build() {
    std::int64_t missing = input_.num_samples.value_or(1);
    while (missing > 0) {
      const std::size_t before = rows_.size();
      for (std::int64_t document = input_.begin; document < input_.end; ++document)
        add_document(document_begin(document), document_begin(document + 1));
      if (rows_.size() == before) break;
      missing = input_.num_samples.value_or(0) - std::ssize(rows_);
    }
    std::mt19937_64 shuffle(static_cast<std::uint64_t>(std::int64_t{input_.seed} + 1));
    for (std::size_t i = rows_.size(); i-- > 1;) std::swap(rows_[i], rows_[shuffle() % (i + 1)]);
    return std::move(rows_);
  }

 private:
  static std::uint32_t seed(const SentenceIndexInput& input) {
    return static_cast<std::uint32_t>(input.seed);
  }
  std::int64_t document_begin(std::int64_t document) const {
    return input_.document_begins[static_cast<std::size_t>(document)];
  }
  std::int32_t length(std::int64_t sentence) const {
    return input_.lengths[static_cast<std::size_t>(sentence)];
  }

  bool is_kept(std::int64_t begin, std::int64_t end) const {
    if (end - begin < input_.min_sentences) return false;
    for (std::int64_t sentence = begin; end - begin > 1 && sentence < end; ++sentence)
      if (length(sentence) > kLongestSentence) return false;
    return true;
  }

  std::int64_t draw_target_length() {
    if (short_ratio_ == 0) return input_.sequence_length;
    const auto drawn = static_cast<std::int64_t>(random_());
    return drawn % short_ratio_ == 0 ? 2 + drawn % (input_.sequence_length - 1)
                                     : input_.sequence_length;
  }

  void add_document(std::int64_t begin, std::int64_t end) {
    if (!is_kept(begin, end)) return;
    std::int64_t target = draw_target_length(), tokens = 0, first = begin;
    for (std::int64_t next = begin + 1; next <= end; ++next) {
      tokens += length(next - 1);
      const bool is_full =
          tokens >= target && end - next > 1 && next - first >= input_.min_sentences;
      if (!is_full && next < end) continue;
      rows_.push_back({first, next, target});
      first = next;
      target = draw_target_length();
      tokens = 0;
    }
  }

  const SentenceIndexInput& input_;
  std::mt19937 random_;
  std::int64_t short_ratio_ = 0;
  std::vector<Row> rows_;
};

template <class T>
NpyArray array_of(const std::vector<Row>& rows) {
  std::vector<T> values;
  values.reserve(3 * rows.size());
  for (const Row& row : rows)
    for (const std::int64_t value : {row.begin, row.end, row.target_length})
      values.push_back(static_cast<T>(value));
  return NpyArray(std::move(values), 3);
}

/// Returns an array [samples, 3], shuffled: the first sentence of each sample, the sentence behind
/// its last one, and its target length. Documents of several sentences, one of which has more than
/// 512 tokens, are left out. Without documents that are kept, there are no samples.
NpyArray build_sentence_index(const SentenceIndexInput& input) {
  const std::vector<Row> rows = SentenceIndexBuilder(input).build();
  return input.lengths.size() > std::numeric_limits<std::uint32_t>::max()
             ? array_of<std::int64_t>(rows)
             : array_of<std::uint32_t>(rows);
}

}  // namespace

MaskedDataset::MaskedDataset(SentenceSource source, SourcePart part,
                             const GptDatasetOptions& options, Kind kind,
                             std::vector<std::string>& warnings)
    : SourceDataset(std::move(part), source.tokens->name(), std::move(kind.fields)),
      source_(std::move(source)),
      options_(options),
      kind_(std::move(kind)) {
  if (options_.sequence_length < kind_.added_tokens + 2)
    throw UserError({"--seq-length must be at least " + std::to_string(kind_.added_tokens + 2),
                     std::to_string(options_.sequence_length), ""});
  if (options_.seed < 0 || options_.seed > std::numeric_limits<std::int32_t>::max())
    throw UserError({"--seed must be from 0 to 2147483647 to order sentences",
                     std::to_string(options_.seed), ""});
  if (part_.begin == part_.end && part_.num_samples != 0) throw_empty_part();
  if (part_.begin == part_.end) {
    sample_index_ = NpyArray(std::vector<std::uint32_t>{}, 3);
    return;
  }
  sample_index_ = load_or_build(
      cache_entry(), [this] { return IndexArrays{build()}; },
      [this](const IndexArrays& loaded) {
        const std::vector<std::int64_t>& shape = loaded[0].shape();
        return shape.size() == 2 && shape[1] == 3 && shape[0] >= part_.num_samples.value_or(0);
      },
      warnings)[0];
  if (size() == 0 && part_.num_samples != 0) throw_empty_part();
}

void MaskedDataset::throw_empty_part() const {
  throw UserError({"dataset " + source_.tokens->name() + ": the " +
                       std::string(split_name(part_.split)) +
                       " split has no document of at least " + std::to_string(kind_.min_sentences) +
                       " sentences",
                   std::to_string(part_.end - part_.begin) + " documents",
                   "make the dataset with preprocess-data --split-sentences, or give the split a "
                   "larger share with --split"});
}

JsonText MaskedDataset::identifiers() const {
  JsonText json = to_json(sample_description(kind_.class_name, part_, options_));
  const MaskingOptions& masking = options_.masked.masking;
  json["masking_probability"] = masking.probability;
  json["short_sequence_probability"] = masking.short_sequence_probability;
  json["masking_max_ngram"] = masking.max_ngram;
  json["masking_do_full_word"] = masking.whole_words;
  json["masking_do_permutation"] = false;
  json["masking_use_longer_ngrams"] = masking.longer_ngrams;
  json["masking_use_geometric_distribution"] = masking.geometric;
  json[kind_.key] = kind_.value;
  return json;
}

IndexCacheEntry MaskedDataset::cache_entry() const {
  if (!options_.cache || (!part_.path && options_.cache_folder.empty())) return {};
  IndexCacheEntry entry{.folder = options_.cache_folder,
                        .class_name = kind_.class_name,
                        .split = std::string(split_name(part_.split)),
                        .description = python_json_dumps(identifiers()),
                        .array_names = {"sample_index"}};
  if (!part_.path) return entry;
  if (entry.folder.empty()) entry.folder = cache_folder_beside(part_, kind_.class_name);
  // The order depends on nothing of the data but the lengths and the documents.
  entry.sources = {
      .files = {index_file()}, .checksum = [this] {
        return checksum(checksum_hex(checksum(source_.tokens->sequence_lengths().bytes())) +
                        checksum_hex(checksum(source_.document_begins.bytes())));
      }};
  return entry;
}

NpyArray MaskedDataset::build() const {
  source_.tokens->check();
  return build_sentence_index(
      {.lengths = source_.tokens->sequence_lengths(),
       .document_begins = source_.document_begins,
       .begin = part_.begin,
       .end = part_.end,
       .num_samples = part_.num_samples,
       .sequence_length = options_.sequence_length - kind_.added_tokens,
       .short_sequence_probability = options_.masked.masking.short_sequence_probability,
       .seed = static_cast<std::int32_t>(options_.seed),
       .min_sentences = kind_.min_sentences});
}

MaskedDataset::Draw MaskedDataset::draw(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  const std::int64_t begin = sample_index_.at(3 * index), end = sample_index_.at(3 * index + 1);
  const auto lengths = source_.tokens->sequence_lengths();
  Draw draw{.sentences = {},
            .target_length = sample_index_.at(3 * index + 2),
            .random = RandomState(static_cast<std::uint32_t>(options_.seed + index))};
  if (begin < 0 || begin > end || end > static_cast<std::int64_t>(lengths.size()) ||
      draw.target_length < 0 || draw.target_length > options_.sequence_length - kind_.added_tokens)
    throw UserError(
        {"the cached sample order of " + source_.tokens->name() + " does not match the data",
         "sample " + std::to_string(index), "delete its cache folder"});
  for (std::int64_t sentence = begin; sentence < end; ++sentence) {
    auto& tokens = draw.sentences.emplace_back(lengths[static_cast<std::size_t>(sentence)]);
    source_.tokens->read(sentence, 0, tokens);
  }
  return draw;
}

std::vector<CorpusShare> MaskedDataset::shares(std::int64_t samples) const {
  CorpusShare share{
      .name = source_.tokens->name(), .documents = part_.end - part_.begin, .samples = samples};
  const auto lengths = source_.tokens->sequence_lengths();
  const auto begin = source_.document_begins[static_cast<std::size_t>(part_.begin)],
             end = source_.document_begins[static_cast<std::size_t>(part_.end)];
  share.tokens = total_tokens(lengths, begin, end);
  std::int64_t taken = 0;
  for (std::int64_t i = 0; i < std::min(samples, size()); ++i)
    for (std::int64_t k = sample_index_.at(3 * i); k < sample_index_.at(3 * i + 1); ++k)
      taken += lengths[static_cast<std::size_t>(k)];
  if (share.tokens > 0)
    share.epochs = static_cast<double>(taken) / static_cast<double>(share.tokens);
  return {share};
}

void require_token(std::int64_t id, const std::string& token, const std::string& dataset) {
  if (id >= 0) return;
  throw UserError({"samples of " + dataset + " need the token " + token, "the tokenizer has none",
                   "use --tokenizer-type BertWordPieceLowerCase with BERT's vocab.txt as "
                   "--vocab-file, or add the token to your tokenizer"});
}

}  // namespace megatron
