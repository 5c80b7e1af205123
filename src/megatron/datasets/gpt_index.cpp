#include "megatron/datasets/gpt_index.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::vector<std::int32_t> build_document_index(const GptIndexInput& input, const EpochPlan& plan,
                                               RandomState& random) {
  const std::int64_t documents = input.end - input.begin;
  std::vector<std::int32_t> index(static_cast<std::size_t>(documents * plan.num_epochs));
  for (std::int64_t epoch = 0; epoch < plan.num_epochs; ++epoch) {
    const auto first = index.begin() + epoch * documents;
    std::iota(first, first + documents, static_cast<std::int32_t>(input.begin));
  }
  const std::size_t first =
      plan.separate_final_epoch ? index.size() - static_cast<std::size_t>(documents) : index.size();
  random.shuffle(std::span(index).first(first));
  random.shuffle(std::span(index).subspan(first));
  return index;
}

/// Walks the concatenated documents in steps of sequence_length tokens and records where each
/// sample begins. Documents are in random order, so their lengths are fetched ahead.
template <class T>
std::vector<T> build_sample_index(const GptIndexInput& input,
                                  const std::vector<std::int32_t>& documents,
                                  std::int64_t samples) {
  constexpr std::size_t kAhead = 32;
  const std::int64_t extra = input.add_extra_token ? 1 : 0;
  std::vector<T> index(static_cast<std::size_t>(2 * (samples + 1)));
  std::size_t position = 0;
  const auto fetch_ahead = [&] {
    if (position + kAhead < documents.size())
      __builtin_prefetch(input.lengths.bytes().data() +
                         sizeof(std::int32_t) *
                             static_cast<std::size_t>(documents[position + kAhead]));
  };
  std::int64_t offset = 0;
  for (std::int64_t sample = 1; sample <= samples; ++sample) {
    std::int64_t remaining = input.sequence_length + extra;
    while (remaining != 0) {
      const std::int64_t length =
          input.lengths[static_cast<std::size_t>(documents[position])] - offset;
      remaining -= length;
      if (remaining <= 0) {
        offset += remaining + length - extra;
        remaining = 0;
      } else if (position + 1 == documents.size()) {
        offset = input.lengths[static_cast<std::size_t>(documents[position])] - extra;
        break;
      } else {
        ++position;
        offset = 0;
        fetch_ahead();
      }
    }
    index[static_cast<std::size_t>(2 * sample)] = static_cast<T>(position);
    index[static_cast<std::size_t>(2 * sample + 1)] = static_cast<T>(offset);
  }
  return index;
}

template <class T>
NpyArray build_shuffle_index(std::int64_t first, std::int64_t total, RandomState& random) {
  std::vector<T> index(static_cast<std::size_t>(total));
  std::iota(index.begin(), index.end(), T{0});
  random.shuffle(std::span(index).first(static_cast<std::size_t>(first)));
  random.shuffle(std::span(index).subspan(static_cast<std::size_t>(first)));
  return NpyArray(std::move(index));
}

}  // namespace

EpochPlan plan_epochs(const GptIndexInput& input) {
  const std::int64_t extra = input.add_extra_token ? 1 : 0, sequence = input.sequence_length;
  EpochPlan plan;
  for (std::int64_t i = input.begin; i < input.end; ++i)
    plan.tokens_per_epoch += input.lengths[static_cast<std::size_t>(i)];
  if (input.num_samples) {
    MEGATRON_CHECK(plan.tokens_per_epoch > 0, "the split has no tokens");
    const std::int64_t requested = *input.num_samples * sequence + extra;
    plan.num_epochs =
        std::max<std::int64_t>(1, (requested + plan.tokens_per_epoch - 1) / plan.tokens_per_epoch);
  }
  if (plan.num_epochs > 1) {
    plan.samples_before_final_epoch =
        ((plan.num_epochs - 1) * plan.tokens_per_epoch - extra) / sequence;
    const std::int64_t from_final_epoch = *input.num_samples - plan.samples_before_final_epoch;
    const std::int64_t per_epoch = (plan.tokens_per_epoch - extra) / sequence;
    plan.separate_final_epoch =
        from_final_epoch < static_cast<std::int64_t>(0.80 * static_cast<double>(per_epoch));
  }
  const std::int64_t tokens =
      std::max<std::int64_t>(0, plan.num_epochs * plan.tokens_per_epoch - extra);
  plan.total_samples = tokens / sequence;
  if (!input.drop_last_partial_sequence)  // megatron-core divides in single precision
    plan.total_samples = static_cast<std::int64_t>(
        std::ceil(static_cast<float>(tokens) / static_cast<float>(sequence)));
  return plan;
}

/// Samples are cut in a thread of their own, because shuffling them needs nothing but their number.
GptIndex build_gpt_index(const GptIndexInput& input) {
  const EpochPlan plan = plan_epochs(input);
  RandomState random(input.seed);
  std::vector<std::int32_t> documents = build_document_index(input, plan, random);

  constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
  const bool wide_documents = static_cast<std::int64_t>(documents.size()) > kInt32Max;
  std::future<NpyArray> samples = std::async(std::launch::async, [&] {
    return wide_documents
               ? NpyArray(build_sample_index<std::int64_t>(input, documents, plan.total_samples), 2)
               : NpyArray(build_sample_index<std::int32_t>(input, documents, plan.total_samples),
                          2);
  });
  GptIndex index;
  const std::int64_t first =
      plan.separate_final_epoch ? plan.samples_before_final_epoch : plan.total_samples;
  const bool wide =
      plan.total_samples >= std::int64_t{std::numeric_limits<std::uint32_t>::max()} - 1;
  index.shuffle_index = wide
                            ? build_shuffle_index<std::int64_t>(first, plan.total_samples, random)
                            : build_shuffle_index<std::uint32_t>(first, plan.total_samples, random);
  index.sample_index = samples.get();
  index.document_index = NpyArray(std::move(documents));
  return index;
}

}  // namespace megatron
