#include "megatron/datasets/gpt_dataset.h"

#include <algorithm>
#include <limits>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json_text.h"

namespace megatron {

GptDataset::GptDataset(std::shared_ptr<const TokenSource> source, SourcePart part,
                       const GptDatasetOptions& options, std::vector<std::string>& warnings)
    : SourceDataset(std::move(part), source->name(), causal_fields(options.sequence_length)),
      source_(std::move(source)),
      options_(options) {
  check_order_options(options_);
  const IndexCacheEntry entry = cache_entry();
  if ((!part_.path && entry.folder.empty()) || options_.defer_index) {
    size_ = plan().total_samples;
    return;
  }
  IndexArrays arrays = load_or_build(
      entry, [this] { return build(); },
      [this](const IndexArrays& loaded) { return is_valid_cache(loaded); }, warnings);
  index_once_.run([&] { index_ = {arrays[0], arrays[1], arrays[2]}; });
  size_ = index_.shuffle_index.size();
}

const GptIndex& GptDataset::index() const {
  index_once_.run([&] {
    const IndexArrays arrays = build();
    index_ = {arrays[0], arrays[1], arrays[2]};
  });
  return index_;
}

IndexCacheEntry GptDataset::cache_entry() const {
  IndexCacheEntry entry = index_cache_entry(*source_, part_, options_, options_.class_name());
  entry.description = python_json_dumps(identifiers());
  entry.array_names = {"document_index", "sample_index", "shuffle_index"};
  return entry;
}

JsonText GptDataset::identifiers() const {
  return to_json(sample_description(options_.class_name(), part_, options_));
}

std::int64_t GptDataset::samples_of_epochs(double epochs) const {
  const std::int64_t extra = options_.add_extra_token ? 1 : 0;
  const std::int64_t tokens = whole_epochs(epochs, plan().tokens_per_epoch) - extra;
  return std::max<std::int64_t>(0, tokens) / options_.sequence_length;
}

GptIndexInput GptDataset::index_input() const {
  return {.lengths = source_->sequence_lengths(),
          .begin = part_.begin,
          .end = part_.end,
          .num_samples = part_.num_samples,
          .sequence_length = options_.sequence_length,
          .seed = static_cast<std::uint32_t>(options_.seed),
          .drop_last_partial_sequence =
              part_.split != Split::valid || options_.drop_last_partial_validation_sequence,
          .add_extra_token = options_.add_extra_token};
}

/// Plans the epochs. Throws a UserError when the split has no tokens or needs too many epochs.
EpochPlan GptDataset::plan() const {
  const GptIndexInput input = index_input();
  bool has_tokens = false;
  for (std::int64_t i = input.begin; i < input.end && !has_tokens; ++i)
    has_tokens = input.lengths[static_cast<std::size_t>(i)] > 0;
  if (!has_tokens) throw_empty_split(*source_, part_);
  constexpr double kMostTokens = 4e18;  // more would overflow where they are counted
  const double wanted = static_cast<double>(input.num_samples.value_or(0)) *
                        static_cast<double>(input.sequence_length);
  if (wanted > kMostTokens) {
    const std::int64_t tokens = total_tokens(input.lengths, input.begin, input.end);
    throw_too_many_epochs(
        *source_, part_,
        static_cast<std::int64_t>(std::min(wanted / static_cast<double>(tokens), 9e18)), tokens);
  }

  const EpochPlan plan = plan_epochs(input);
  constexpr std::int64_t kMostDocuments = std::int64_t{1} << 33;
  if (plan.num_epochs > kMostDocuments / (input.end - input.begin))
    throw_too_many_epochs(*source_, part_, plan.num_epochs, plan.tokens_per_epoch);
  return plan;
}

IndexArrays GptDataset::build() const {
  source_->check();
  plan();
  const GptIndex index = build_gpt_index(index_input());
  return {index.document_index, index.sample_index, index.shuffle_index};
}

bool GptDataset::is_valid_cache(const IndexArrays& arrays) const {
  const NpyArray &documents = arrays[0], &samples = arrays[1], &shuffle = arrays[2];
  const std::int64_t sequences = part_.end - part_.begin;
  return documents.shape().size() == 1 && samples.shape().size() == 2 && samples.shape()[1] == 2 &&
         shuffle.shape().size() == 1 && samples.shape()[0] == shuffle.size() + 1 && sequences > 0 &&
         documents.size() > 0 && documents.size() % sequences == 0 &&
         shuffle.size() >= part_.num_samples.value_or(0);
}

std::vector<std::int64_t> GptDataset::text(std::int64_t sample) const {
  return read_text(sample).ids;
}

SampleText GptDataset::read_text(std::int64_t sample) const {
  MEGATRON_CHECK(sample >= 0 && sample < size(), "sample ", sample, " of ", size());
  const auto broken = [&] {
    return UserError({"the cached sample order of " + source_->name() + " does not match the data",
                      "sample " + std::to_string(sample),
                      "delete the cache folder " + cache_entry().folder.string()});
  };
  const GptIndex& order = index();
  const std::int64_t extra = options_.add_extra_token ? 1 : 0,
                     wanted = options_.sequence_length + extra;
  const std::int64_t number = order.shuffle_index.at(sample);
  if (number < 0 || number >= size()) throw broken();
  const std::int64_t first = order.sample_index.at(2 * number),
                     first_offset = order.sample_index.at(2 * number + 1);
  const std::int64_t last = order.sample_index.at(2 * number + 2),
                     last_end = order.sample_index.at(2 * number + 3) + extra;
  if (first < 0 || last < first || last >= order.document_index.size()) throw broken();

  const auto lengths = source_->sequence_lengths();
  std::vector<std::int64_t> ids(static_cast<std::size_t>(wanted), options_.pad), document_begins;
  std::int64_t filled = 0;
  for (std::int64_t position = first; position <= last; ++position) {
    const std::int64_t sequence = order.document_index.at(position);
    if (sequence < part_.begin || sequence >= part_.end) throw broken();
    const std::int64_t length = lengths[static_cast<std::size_t>(sequence)];
    const std::int64_t begin = position == first ? first_offset : 0;
    const std::int64_t end = position == last ? last_end : length;
    if (begin < 0 || begin > end || end > length || end - begin > wanted - filled) throw broken();
    if (end > begin) document_begins.push_back(filled);
    source_->read(sequence, begin,
                  std::span(ids).subspan(static_cast<std::size_t>(filled),
                                         static_cast<std::size_t>(end - begin)));
    filled += end - begin;
  }
  // Only samples at the end of the last sequence are short. There may be several of them, because
  // megatron-core rounds the number of validation samples in single precision.
  const bool ends_last =
      last + 1 == order.document_index.size() &&
      last_end == lengths[static_cast<std::size_t>(order.document_index.at(last))];
  if (filled < wanted && !ends_last) throw broken();
  if (options_.fim) {
    RandomState random = fim_random(options_.seed, sample);
    const auto text = std::span(ids).first(static_cast<std::size_t>(filled));
    std::ranges::copy(options_.fim->apply(text, random), text.begin());
  }
  return {
      .ids = std::move(ids), .document_begins = std::move(document_begins), .num_tokens = filled};
}

Sample GptDataset::sample(std::int64_t index) const {
  return make_sample(fields(), read_text(index), options_);
}

std::vector<CorpusShare> GptDataset::shares(std::int64_t samples) const {
  CorpusShare share{.name = source_->name(),
                    .documents = part_.end - part_.begin,
                    .tokens = total_tokens(source_->sequence_lengths(), part_.begin, part_.end),
                    .samples = samples};
  const double taken = static_cast<double>(samples) * static_cast<double>(options_.sequence_length);
  if (share.tokens > 0) share.epochs = taken / static_cast<double>(share.tokens);
  return {share};
}

void check_order_options(const GptDatasetOptions& options) {
  if (options.sequence_length < 1)
    throw UserError(
        {"--seq-length must be at least 1", std::to_string(options.sequence_length), ""});
  if (options.seed < 0 || options.seed > std::numeric_limits<std::uint32_t>::max())
    throw UserError(
        {"--seed must be from 0 to 4294967295 to order data", std::to_string(options.seed), ""});
}

void throw_empty_split(const TokenSource& source, const SourcePart& part) {
  const std::string name(split_name(part.split));
  throw UserError(
      {"dataset " + source.name() + ": the " + name + " split has no tokens, but " +
           (part.num_samples ? std::to_string(*part.num_samples) + " samples are"
                             : std::string("samples are")) +
           " requested",
       "it covers sequences " + std::to_string(part.begin) + " to " + std::to_string(part.end) +
           " of " + std::to_string(source.sequence_lengths().size()),
       "give the " + name +
           " split a larger share with --split, or request no samples of it (--eval-iters 0)"});
}

void throw_too_many_epochs(const TokenSource& source, const SourcePart& part,
                           std::int64_t num_epochs, std::int64_t tokens_per_epoch) {
  throw UserError({"dataset " + source.name() + ": " +
                       std::to_string(part.num_samples.value_or(0)) + " samples would repeat the " +
                       std::string(split_name(part.split)) + " split " +
                       std::to_string(num_epochs) + " times",
                   std::to_string(tokens_per_epoch) + " tokens per repetition",
                   "use a larger corpus or fewer samples"});
}

IndexCacheEntry index_cache_entry(const TokenSource& source, const SourcePart& part,
                                  const GptDatasetOptions& options, const std::string& class_name) {
  IndexCacheEntry entry{.class_name = class_name, .split = std::string(split_name(part.split))};
  if (!options.cache) return entry;
  entry.folder = options.cache_folder;
  if (!part.path) return entry;
  if (entry.folder.empty()) entry.folder = cache_folder_beside(part, class_name);
  entry.sources = {.files = {index_path(part)},
                   .checksum = [&source] { return checksum(source.sequence_lengths().bytes()); }};
  return entry;
}

Sample make_sample(const SampleFields& fields, SampleText text, const GptDatasetOptions& options) {
  const auto length = static_cast<std::size_t>(options.sequence_length);
  if (!options.add_extra_token) text.ids.push_back(options.pad);
  MEGATRON_CHECK(text.ids.size() == length + 1, "a sample has ", text.ids.size(), " ids, not ",
                 length + 1);

  std::vector<std::int64_t> labels(text.ids.begin() + 1, text.ids.end()), position_ids(length),
      starts{0}, padding;
  std::vector<std::int64_t>& tokens = text.ids;
  tokens.pop_back();
  std::vector<float> loss_mask(length, 1.0f);
  std::int64_t start = 0;
  bool after_eod = false;
  for (std::size_t i = 0; i < length; ++i) {
    const auto position = static_cast<std::int64_t>(i);
    const bool begins_document = options.inter_document_masking &&
                                 std::ranges::binary_search(text.document_begins, position);
    if (begins_document || (after_eod && options.reset_position_ids)) start = position;
    if (i > 0 && (begins_document || (after_eod && options.reset_attention_mask)))
      starts.push_back(position);
    position_ids[i] = position - start;
    after_eod = tokens[i] == options.eod;
    if (position >= text.num_tokens) padding.push_back(position);
    if (position >= text.num_tokens || (after_eod && options.eod_mask_loss) ||
        labels[i] == options.pad)
      loss_mask[i] = 0.0f;
  }
  for (const std::int64_t i : text.without_label) loss_mask[static_cast<std::size_t>(i)] = 0.0f;
  for (auto* ids : {&tokens, &labels}) std::ranges::replace(*ids, options.pad, std::int64_t{0});
  return {
      {fields, std::move(tokens), std::move(labels), std::move(position_ids), std::move(loss_mask)},
      std::move(starts),
      std::move(padding)};
}

}  // namespace megatron
