#include "megatron/datasets/blended_dataset.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/unique_description.h"

namespace megatron {
namespace {

/// Returns how many samples a dataset is behind its weight at a position.
double lag(double weight, std::int64_t position, std::int64_t drawn) {
  return weight * std::max(static_cast<double>(position), 1.0) - static_cast<double>(drawn);
}

/// The positions of a blend as they are drawn.
struct Draws {
  std::vector<std::int16_t> datasets = {};
  std::vector<std::int64_t> samples = {};
  std::vector<std::int64_t> taken = {};  ///< samples of each dataset so far
  BlendIndex index() { return {NpyArray(std::move(datasets)), NpyArray(std::move(samples))}; }
};

/// Appends `size` samples, each from the dataset that is furthest behind (the first of equals)
/// since this call began. Dataset i gives at most limits[i] samples.
void draw_most_lagging(const std::vector<double>& weights, const std::vector<std::int64_t>& limits,
                       std::int64_t size, Draws& draws) {
  std::vector<std::int64_t> drawn(weights.size(), 0);
  draws.taken.resize(weights.size(), 0);
  for (std::int64_t position = 0; position < size; ++position) {
    std::size_t chosen = 0;
    double most = std::numeric_limits<double>::lowest();
    for (std::size_t dataset = 0; dataset < weights.size(); ++dataset) {
      if (drawn[dataset] == limits[dataset]) continue;
      const double candidate = lag(weights[dataset], position, drawn[dataset]);
      if (candidate > most) {
        most = candidate;
        chosen = dataset;
      }
    }
    ++drawn[chosen];
    draws.datasets.push_back(static_cast<std::int16_t>(chosen));
    draws.samples.push_back(draws.taken[chosen]++);
  }
}

JsonText to_json(const std::vector<BlendPhase>& phases) {
  JsonText list = JsonText::array();
  for (const BlendPhase& phase : phases)
    list.push_back({{"size", phase.span.num_samples}, {"weights", phase.weights}});
  return list;
}

std::int64_t total(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

}  // namespace

BlendIndex build_blend_index(const std::vector<double>& weights, std::int64_t size) {
  BlendPhase phase{.span = {}, .weights = weights};
  phase.span.num_samples = size;
  return build_phased_blend_index({phase});
}

BlendIndex build_phased_blend_index(const std::vector<BlendPhase>& phases) {
  Draws draws;
  for (const auto& [span, weights] : phases) {
    std::vector<std::int64_t> limits;
    for (const double weight : weights)
      limits.push_back(weight > 0 ? std::numeric_limits<std::int64_t>::max() : 0);
    const auto size = draws.samples.size() + static_cast<std::size_t>(span.num_samples);
    draws.datasets.reserve(size);
    draws.samples.reserve(size);
    draw_most_lagging(weights, limits, span.num_samples, draws);
  }
  return draws.index();
}

BlendIndex build_exhaustive_blend_index(const std::vector<std::int64_t>& sizes) {
  std::vector<double> weights;
  for (const std::int64_t size : sizes)
    weights.push_back(static_cast<double>(size) / static_cast<double>(total(sizes)));
  Draws draws;
  draw_most_lagging(weights, sizes, total(sizes), draws);
  return draws.index();
}

BlendedDataset::BlendedDataset(std::vector<std::shared_ptr<const SourceDataset>> datasets,
                               const BlendOptions& options, std::vector<std::string>& warnings)
    : datasets_(std::move(datasets)), phases_(options.phases) {
  MEGATRON_CHECK(
      !datasets_.empty() && (options.weights.empty() || options.weights.size() == datasets_.size()),
      options.weights.size(), " weights for a blend of ", datasets_.size(), " datasets");
  if (datasets_.size() >= 32767)
    throw UserError({"a blend holds at most 32766 datasets", std::to_string(datasets_.size()),
                     "merge some of them"});

  std::vector<std::int64_t> sizes;
  for (const auto& dataset : datasets_) sizes.push_back(dataset->size());
  const BlendSchedule schedule{.sources = {}, .phases = phases_};
  const bool is_phased = !phases_.empty(), is_exhaustive = !is_phased && !options.size;
  std::vector<double> weights = is_phased ? schedule.mean_weights() : options.weights;
  if (weights.empty()) {
    check_no_empty_dataset();
    weights.assign(sizes.begin(), sizes.end());
  }
  if (!is_phased && !is_exhaustive) weights = normalize(std::move(weights));
  weights_ = normalize(weights);

  JsonText order;  // what megatron-core identifies a blend by, besides its datasets
  if (is_phased) {
    order["phases"] = to_json(phases_);
  } else {
    order["weights"] = is_exhaustive ? JsonText(sizes) : JsonText(weights);
    order["size"] = options.size;
  }
  IndexCacheEntry entry = cache_entry(order, options.cache_folder);
  entry.sources.checksum = [&sizes] { return checksum(std::as_bytes(std::span(sizes))); };
  const std::int64_t size =
      is_phased ? schedule.num_samples() : options.size.value_or(total(sizes));
  const auto build = [&] {
    BlendIndex index = is_phased       ? build_phased_blend_index(phases_)
                       : is_exhaustive ? build_exhaustive_blend_index(sizes)
                                       : build_blend_index(weights, size);
    check_dataset_sizes(index, options.surplus);
    return IndexArrays{index.dataset_index, index.dataset_sample_index};
  };
  const auto accept = [&](const IndexArrays& arrays) {
    return arrays[0].shape() == std::vector<std::int64_t>{size} &&
           arrays[1].shape() == arrays[0].shape();
  };
  IndexArrays arrays = load_or_build(entry, build, accept, warnings);
  index_ = {arrays[0], arrays[1]};
}

void BlendedDataset::check_no_empty_dataset() const {
  for (const auto& dataset : datasets_) {
    if (dataset->size() == 0)
      throw UserError(
          {"dataset " + dataset->part().path.value_or("") + ": its " +
               std::string(split_name(dataset->part().split)) + " split is shorter than one sample",
           "", "leave it out of the blend, enlarge the split, or give the datasets weights"});
  }
}

IndexCacheEntry BlendedDataset::cache_entry(const JsonText& order,
                                            const std::string& folder) const {
  const std::string split(split_name(datasets_[0]->part().split));
  JsonText identifiers;
  identifiers["class"] = "BlendedDataset";
  identifiers["datasets"] = JsonText::array();
  for (const auto& dataset : datasets_) identifiers["datasets"].push_back(dataset->identifiers());
  identifiers["split"] = split;
  identifiers.update(order);
  IndexCacheEntry entry{.folder = folder,
                        .class_name = "BlendedDataset",
                        .split = split,
                        .description = python_json_dumps(identifiers),
                        .array_names = {"dataset_index", "dataset_sample_index"}};
  for (const auto& dataset : datasets_) entry.sources.files.push_back(dataset->index_file());
  return entry;
}

void BlendedDataset::check_dataset_sizes(const BlendIndex& index, double surplus) const {
  std::vector<std::int64_t> drawn(datasets_.size(), 0);
  for (std::int64_t i = 0; i < index.dataset_index.size(); ++i)
    ++drawn[static_cast<std::size_t>(index.dataset_index.at(i))];
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    if (drawn[i] <= datasets_[i]->size()) continue;
    throw UserError({"the " + std::string(split_name(datasets_[i]->part().split)) +
                         " blend draws " + std::to_string(drawn[i]) + " samples from " +
                         datasets_[i]->part().path.value_or("") + ", which has " +
                         std::to_string(datasets_[i]->size()),
                     "",
                     "raise --mid-level-dataset-surplus, now " + python_float_repr(surplus) +
                         ", two- or ten-fold"});
  }
}

std::pair<const SourceDataset&, std::int64_t> BlendedDataset::locate(std::int64_t index) const {
  const std::int64_t dataset = index_.dataset_index.at(index),
                     sample = index_.dataset_sample_index.at(index);
  if (dataset < 0 || dataset >= static_cast<std::int64_t>(datasets_.size()) || sample < 0 ||
      sample >= datasets_[static_cast<std::size_t>(dataset)]->size())
    throw UserError({"the cached sample order of the blend does not match its datasets",
                     "sample " + std::to_string(index), "delete the folder of --data-cache-path"});
  return {*datasets_[static_cast<std::size_t>(dataset)], sample};
}

Sample BlendedDataset::sample(std::int64_t index) const {
  const auto [dataset, sample] = locate(index);
  return dataset.sample(sample);
}

std::vector<std::int64_t> BlendedDataset::text(std::int64_t index) const {
  const auto [dataset, sample] = locate(index);
  return dataset.text(sample);
}

std::vector<std::int64_t> BlendedDataset::drawn_samples(std::int64_t begin,
                                                        std::int64_t end) const {
  std::vector<std::int64_t> drawn(datasets_.size(), 0);
  for (std::int64_t i = begin; i < end; ++i)
    ++drawn.at(static_cast<std::size_t>(index_.dataset_index.at(i)));
  return drawn;
}

std::vector<CorpusShare> BlendedDataset::shares(std::int64_t samples) const {
  std::vector<CorpusShare> all;
  const std::int64_t taken = std::min(samples, size());
  const std::vector<std::int64_t> drawn = drawn_samples(0, taken);
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    CorpusShare share = datasets_[i]->shares(drawn[i]).front();
    share.weight = weights_[i];
    all.push_back(std::move(share));
  }
  if (phases_.size() > 1) add_phases(all, taken);
  return all;
}

/// Divides the shares among the mixtures that the first `samples` samples go through.
void BlendedDataset::add_phases(std::vector<CorpusShare>& shares, std::int64_t samples) const {
  std::int64_t begin = 0;
  for (const auto& [span, weights] : phases_) {
    const std::int64_t end = std::min(begin + span.num_samples, samples);
    const std::vector<std::int64_t> drawn = drawn_samples(std::min(begin, end), end);
    begin += span.num_samples;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      CorpusShare& share = shares[i];
      PhaseShare phase{.first_iteration = span.begin + 1,
                       .last_iteration = span.end,
                       .weight = weights[i],
                       .samples = drawn[i]};
      if (share.samples > 0)
        phase.epochs =
            share.epochs * (static_cast<double>(drawn[i]) / static_cast<double>(share.samples));
      share.phases.push_back(phase);
    }
  }
}

std::string BlendedDataset::describe(std::int64_t index) const {
  const auto [dataset, sample] = locate(index);
  return dataset.describe(sample) + " (sample " + std::to_string(index) + " of the blend)";
}

}  // namespace megatron
