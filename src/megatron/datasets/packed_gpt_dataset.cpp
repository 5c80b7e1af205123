#include "megatron/datasets/packed_gpt_dataset.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/datasets/random_state.h"

namespace megatron {
namespace {

constexpr const char* kClassName = "PackedGPTDataset";

/// Returns the order of `num_samples` samples: each epoch is a permutation of its own.
std::vector<std::uint32_t> shuffled_rows(std::int64_t num_rows, std::int64_t num_samples,
                                         std::uint32_t seed) {
  RandomState random(seed);
  std::vector<std::uint32_t> order, epoch(static_cast<std::size_t>(num_rows));
  order.reserve(static_cast<std::size_t>(num_samples));
  for (std::int64_t left = num_samples; left > 0; left -= num_rows) {
    std::iota(epoch.begin(), epoch.end(), 0U);
    random.shuffle(std::span(epoch));
    order.insert(order.end(), epoch.begin(), epoch.begin() + std::min(left, num_rows));
  }
  return order;
}

}  // namespace

PackedGptDataset::PackedGptDataset(std::shared_ptr<const TokenSource> source, SourcePart part,
                                   const GptDatasetOptions& options, PackingStrategy strategy,
                                   std::vector<std::string>& warnings)
    : source_(std::move(source)), part_(std::move(part)), options_(options), strategy_(strategy) {
  MEGATRON_CHECK(options_.add_extra_token && !options_.fim, "packed documents hold their text");
  check_order_options(options_);
  options_.inter_document_masking = true;
  const IndexArrays arrays = load_or_build(
      cache_entry(), [this] { return build(); },
      [this](const IndexArrays& loaded) { return is_valid_cache(loaded); }, warnings);
  packed_ = {.documents = arrays[0], .begins = arrays[1], .row_begins = arrays[2]};
  shuffle_index_ = arrays[3];
}

DocumentPackingInput PackedGptDataset::packing_input() const {
  return {.lengths = source_->sequence_lengths(),
          .begin = part_.begin,
          .end = part_.end,
          .sequence_length = options_.sequence_length,
          .strategy = strategy_};
}

IndexCacheEntry PackedGptDataset::cache_entry() const {
  IndexCacheEntry entry = index_cache_entry(*source_, part_, options_, kClassName);
  entry.description = python_json_dumps(identifiers());
  entry.array_names = {"piece_documents", "piece_begins", "sequence_begins", "shuffle_index"};
  return entry;
}

OrderedJson PackedGptDataset::identifiers() const {
  OrderedJson json = to_json(sample_description(kClassName, part_, options_));
  json["packing_strategy"] = std::string(packing_strategy_name(strategy_));
  return json;
}

IndexArrays PackedGptDataset::build() const {
  source_->check();
  constexpr std::int64_t kMany = 10'000'000;
  if (const std::int64_t documents = part_.end - part_.begin; documents >= kMany)
    std::cerr << "note: packing " + std::to_string(documents) + " documents of " + source_->name() +
                     ", which takes some seconds for every ten millions\n";
  PackedDocuments packed = pack_documents(packing_input());
  const std::int64_t num_rows = packed.num_sequences();
  if (num_rows == 0) throw_empty_split(*source_, part_);
  NpyArray order(shuffled_rows(num_rows, part_.num_samples.value_or(num_rows),
                               static_cast<std::uint32_t>(options_.seed)));
  return {packed.documents, packed.begins, packed.row_begins, order};
}

bool PackedGptDataset::is_valid_cache(const IndexArrays& arrays) const {
  const NpyArray &documents = arrays[0], &begins = arrays[1], &rows = arrays[2], &order = arrays[3];
  return documents.size() == begins.size() && rows.size() > 1 &&
         rows.at(rows.size() - 1) == documents.size() &&
         order.size() == part_.num_samples.value_or(rows.size() - 1);
}

PackedGptDataset::Row PackedGptDataset::read_row(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  const auto broken = [&] {
    return UserError({"the cached packing of " + source_->name() + " does not match the data",
                      "sample " + std::to_string(index),
                      "delete the cache folder " + cache_entry().folder.string()});
  };
  const std::int64_t row = shuffle_index_.at(index), capacity = options_.sequence_length;
  if (row < 0 || row >= packed_.num_sequences()) throw broken();
  const std::int64_t first = packed_.row_begins.at(row), last = packed_.row_begins.at(row + 1);
  if (first < 0 || last < first || last > packed_.documents.size()) throw broken();

  Row result;
  result.ids.assign(static_cast<std::size_t>(capacity) + 1, options_.pad);
  std::int64_t filled = 0;
  for (std::int64_t piece = first; piece < last; ++piece) {
    const std::int64_t document = packed_.documents.at(piece), begin = packed_.begins.at(piece);
    if (document < part_.begin || document >= part_.end) throw broken();
    const std::int64_t length = source_->sequence_lengths()[static_cast<std::size_t>(document)];
    const std::int64_t tokens = piece_tokens(length, begin, capacity);
    if (begin < 0 || tokens < 1 || tokens > capacity - filled) throw broken();
    // A piece of which its document goes on fills the sequence, and the next token is a label.
    const std::int64_t next = begin + tokens < length ? 1 : 0;
    source_->read(
        document, begin,
        std::span(result.ids)
            .subspan(static_cast<std::size_t>(filled), static_cast<std::size_t>(tokens + next)));
    result.begins.push_back(filled);
    filled += tokens;
    if (next == 0) result.without_label.push_back(filled - 1);
  }
  for (std::int64_t position = filled; position < capacity; ++position)
    result.without_label.push_back(position);
  return result;
}

Sample PackedGptDataset::sample(std::int64_t index) const {
  Row row = read_row(index);
  Sample sample = make_sample(std::move(row.ids), options_, row.begins);
  for (const std::int64_t position : row.without_label)
    sample.loss_mask[static_cast<std::size_t>(position)] = 0;
  return sample;
}

std::vector<std::int64_t> PackedGptDataset::text(std::int64_t index) const {
  return read_row(index).ids;
}

std::string PackedGptDataset::describe(std::int64_t index) const {
  return "dataset " + source_->name() + ", " + std::string(split_name(part_.split)) + " sample " +
         std::to_string(index);
}

std::vector<CorpusShare> PackedGptDataset::shares(std::int64_t samples) const {
  const PackingShare packing = packing_share(packing_input(), packed_.num_sequences());
  CorpusShare share{.name = source_->name(),
                    .documents = packing.documents,
                    .tokens = packing.tokens + packing.truncated,
                    .samples = samples,
                    .packings = {packing}};
  share.epochs = static_cast<double>(samples) / static_cast<double>(packed_.num_sequences());
  return {share};
}

}  // namespace megatron
