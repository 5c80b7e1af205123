#include "megatron/datasets/packed_gpt_dataset.h"

#include <algorithm>
#include <iostream>
#include <numeric>
#include <span>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/random_state.h"

namespace megatron {
namespace {

constexpr const char* kClassName = "PackedGPTDataset";
constexpr std::int64_t kMostSamples = std::int64_t{1} << 33;  ///< whose order takes 32 GiB

/// Returns the order of `num_samples` samples: each epoch is a permutation of its own.
std::vector<std::uint32_t> shuffled_epochs(std::int64_t num_sequences, std::int64_t num_samples,
                                           std::uint32_t seed) {
  RandomState random(seed);
  std::vector<std::uint32_t> order, epoch(static_cast<std::size_t>(num_sequences));
  order.reserve(static_cast<std::size_t>(num_samples));
  for (std::int64_t left = num_samples; left > 0; left -= num_sequences) {
    std::iota(epoch.begin(), epoch.end(), 0U);
    random.shuffle(std::span(epoch));
    order.insert(order.end(), epoch.begin(), epoch.begin() + std::min(left, num_sequences));
  }
  return order;
}

bool is_list(const NpyArray& array) { return array.shape().size() == 1; }

}  // namespace

PackedGptDataset::PackedGptDataset(std::shared_ptr<const TokenSource> source, SourcePart part,
                                   const GptDatasetOptions& options, PackingStrategy strategy,
                                   std::vector<std::string>& warnings)
    : SourceDataset(std::move(part), source->name(), causal_fields(options.sequence_length)),
      source_(std::move(source)),
      options_(options),
      strategy_(strategy) {
  MEGATRON_CHECK(options_.add_extra_token && !options_.fim, "packed documents hold their text");
  check_order_options(options_);
  options_.inter_document_masking = true;
  const IndexArrays arrays = load_or_build(
      sequences_entry(), [this] { return pack(); },
      [](const IndexArrays& loaded) {
        const NpyArray &documents = loaded[0], &begins = loaded[1], &sequences = loaded[2];
        return is_list(documents) && is_list(begins) && is_list(sequences) &&
               documents.size() == begins.size() && sequences.size() > 1 &&
               sequences.at(sequences.size() - 1) == documents.size();
      },
      warnings);
  packed_ = {.documents = arrays[0], .begins = arrays[1], .sequence_begins = arrays[2]};
  size_ = part_.num_samples.value_or(packed_.num_sequences());
  if (size_ > kMostSamples)
    throw_too_many_epochs(*source_, part_, size_ / packed_.num_sequences(),
                          packing_share(packing_input(), packed_.num_sequences()).tokens);
  if (options_.defer_index) return;
  order_once_.run([&] {
    order_ = load_or_build(
        order_entry(), [this] { return build_order(); },
        [this](const IndexArrays& loaded) {
          return is_list(loaded[0]) && loaded[0].size() == size_;
        },
        warnings)[0];
  });
}

const NpyArray& PackedGptDataset::order() const {
  order_once_.run([&] { order_ = build_order()[0]; });
  return order_;
}

DocumentPackingInput PackedGptDataset::packing_input() const {
  return {.lengths = source_->sequence_lengths(),
          .begin = part_.begin,
          .end = part_.end,
          .sequence_length = options_.sequence_length,
          .strategy = strategy_};
}

/// Sequences do not depend on the number of samples and on the seed, so that another run of the
/// data finds them.
IndexCacheEntry PackedGptDataset::sequences_entry() const {
  IndexCacheEntry entry = index_cache_entry(*source_, part_, options_, kClassName);
  JsonText key = identifiers();
  for (const char* unrelated : {"num_samples", "random_seed"}) key.erase(unrelated);
  entry.description = python_json_dumps(key);
  entry.array_names = {"piece_documents", "piece_begins", "sequence_begins"};
  return entry;
}

IndexCacheEntry PackedGptDataset::order_entry() const {
  IndexCacheEntry entry = index_cache_entry(*source_, part_, options_, kClassName);
  entry.description = python_json_dumps(identifiers());
  entry.array_names = {"shuffle_index"};
  return entry;
}

JsonText PackedGptDataset::identifiers() const {
  JsonText json = to_json(sample_description(kClassName, part_, options_));
  json["packing_strategy"] = std::string(packing_strategy_name(strategy_));
  return json;
}

IndexArrays PackedGptDataset::pack() const {
  source_->check();
  constexpr std::int64_t kMany = 10'000'000;
  if (const std::int64_t documents = part_.end - part_.begin; documents >= kMany)
    std::cerr << "note: packing " + std::to_string(documents) + " documents of " + source_->name() +
                     ", which takes some seconds for every ten million\n";
  const PackedDocuments packed = pack_documents(packing_input());
  if (packed.num_sequences() == 0) throw_empty_split(*source_, part_);
  return {packed.documents, packed.begins, packed.sequence_begins};
}

IndexArrays PackedGptDataset::build_order() const {
  return {NpyArray(
      shuffled_epochs(packed_.num_sequences(), size_, static_cast<std::uint32_t>(options_.seed)))};
}

SampleText PackedGptDataset::read_sequence(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto broken = [&] {
    return UserError({"the cached packing of " + source_->name() + " does not match the data",
                      "sample " + std::to_string(index),
                      "delete the cache folder " + sequences_entry().folder.string()});
  };
  const std::int64_t number = order().at(index), capacity = options_.sequence_length;
  if (number < 0 || number >= packed_.num_sequences()) throw broken();
  const std::int64_t first = packed_.sequence_begins.at(number),
                     last = packed_.sequence_begins.at(number + 1);
  if (first < 0 || last < first || last > packed_.documents.size()) throw broken();

  SampleText result{
      .ids = std::vector<std::int64_t>(static_cast<std::size_t>(capacity) + 1, options_.pad)};
  std::int64_t filled = 0;
  for (std::int64_t piece = first; piece < last; ++piece) {
    const std::int64_t document = packed_.documents.at(piece), begin = packed_.begins.at(piece);
    if (document < part_.begin || document >= part_.end) throw broken();
    const std::int64_t length = source_->sequence_lengths()[static_cast<std::size_t>(document)];
    const std::int64_t tokens = piece_tokens(length, begin, capacity);
    if (begin < 0 || tokens < 1 || tokens > capacity - filled) throw broken();
    // A piece after which its document continues fills the sequence, and the next token is a label.
    const std::int64_t next = begin + tokens < length ? 1 : 0;
    source_->read(
        document, begin,
        std::span(result.ids)
            .subspan(static_cast<std::size_t>(filled), static_cast<std::size_t>(tokens + next)));
    result.document_begins.push_back(filled);
    filled += tokens;
    if (next == 0) result.without_label.push_back(filled - 1);
  }
  result.num_tokens = filled;
  return result;
}

Sample PackedGptDataset::sample(std::int64_t index) const {
  return make_sample(fields(), read_sequence(index), options_);
}

std::vector<std::int64_t> PackedGptDataset::text(std::int64_t index) const {
  return read_sequence(index).ids;
}

std::vector<CorpusShare> PackedGptDataset::shares(std::int64_t samples) const {
  CorpusShare share{.name = source_->name(),
                    .documents = part_.end - part_.begin,
                    .tokens = total_tokens(source_->sequence_lengths(), part_.begin, part_.end),
                    .samples = samples};
  share.epochs = static_cast<double>(samples) / static_cast<double>(packed_.num_sequences());
  share.packings = {packing_share(packing_input(), packed_.num_sequences())};
  return {share};
}

}  // namespace megatron
