#include "megatron/datasets/gpt_index.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/datasets/parallel_for.h"

namespace megatron {
namespace {

/// An array of a fixed size whose values are not initialized. A large one lies on huge pages if the
/// system grants them, so that filling it costs few page faults.
template <class T>
class LargeArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit LargeArray(std::size_t size) : size_(size) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const bool is_large = size > kHugePage / sizeof(T);
    if (size > (~std::size_t{0} >> 1) / sizeof(T)) throw std::bad_alloc();
    const std::size_t page = is_large ? kHugePage : alignof(std::max_align_t);
    const std::size_t bytes = (size * sizeof(T) + page) / page * page;
    values_.reset(static_cast<T*>(std::aligned_alloc(page, bytes)));
    if (!values_) throw std::bad_alloc();
    if (is_large) ::madvise(values_.get(), bytes, MADV_HUGEPAGE);  // advice: it may be refused
  }

  std::size_t size() const { return size_; }
  T* data() { return values_.get(); }
  const T* data() const { return values_.get(); }
  T& operator[](std::size_t i) { return values_.get()[i]; }
  const T& operator[](std::size_t i) const { return values_.get()[i]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(T* values) const { std::free(values); }
  };
  std::unique_ptr<T, Free> values_;
  std::size_t size_;
};

/// Returns how many of `total` values are shuffled together; the others are shuffled apart.
std::array<std::size_t, 2> shuffled_parts(std::size_t total, std::size_t last_part,
                                          const EpochPlan& plan) {
  if (!plan.separate_final_epoch) return {total, 0};
  return {total - last_part, last_part};
}

std::array<std::size_t, 2> document_parts(const GptIndexInput& input, const EpochPlan& plan) {
  const std::int64_t documents = input.end - input.begin;
  return shuffled_parts(static_cast<std::size_t>(documents * plan.num_epochs),
                        static_cast<std::size_t>(documents), plan);
}

LargeArray<std::int32_t> build_document_index(const GptIndexInput& input, const EpochPlan& plan,
                                              RandomState& random) {
  const std::int64_t documents = input.end - input.begin;
  const auto [first, second] = document_parts(input, plan);
  LargeArray<std::int32_t> index(first + second);
  for (std::int64_t epoch = 0; epoch < plan.num_epochs; ++epoch) {
    std::int32_t* const begin = index.data() + epoch * documents;
    std::iota(begin, begin + documents, static_cast<std::int32_t>(input.begin));
  }
  random.shuffle(index.span().first(first));
  random.shuffle(index.span().last(second));
  return index;
}

/// Cuts the concatenated documents into samples and records where each begins: sample k with the
/// document and offset that follow its predecessor, whose last token is number
/// k · sequence_length + extra − 1 of all. Threads take blocks of documents in turn. Each fetches
/// the lengths of its block, which lie anywhere, and hands the sum to the thread of the next block
/// before it looks for the samples.
template <class T>
class SampleCutter {
 public:
  SampleCutter(const GptIndexInput& input, std::span<const std::int32_t> documents,
               std::int64_t samples)
      : input_(input),
        documents_(documents),
        samples_(samples),
        extra_(input.add_extra_token ? 1 : 0),
        index_(static_cast<std::size_t>(2 * (samples + 1))),
        begins_(documents.size() / kBlock + 2) {
    for (std::atomic<std::int64_t>& begin : begins_) begin = kUnknown;
    begins_[0] = 0;
  }

  NpyArray cut() {
    const std::size_t blocks = (documents_.size() + kBlock - 1) / kBlock;
    record(0, 0, 0);
    parallel_for(blocks, [this](std::size_t block) { cut_block(block); });
    // What lies behind the tokens begins at the last of them.
    for (std::int64_t k = samples_; k > 0 && last_token(k) >= begins_[blocks]; --k)
      record(k, documents_.size() - 1, length(documents_.size() - 1) - extra_);
    return NpyArray(std::move(index_), 2);
  }

 private:
  static constexpr std::size_t kBlock = 1 << 14;  ///< whose lengths fit into the L1 or L2 cache
  static constexpr std::int64_t kUnknown = -1;

  std::int64_t length(std::size_t position) const {
    return input_.lengths[static_cast<std::size_t>(documents_[position])];
  }
  std::int64_t last_token(std::int64_t sample) const {
    return sample * input_.sequence_length + extra_ - 1;
  }
  void record(std::int64_t sample, std::size_t position, std::int64_t offset) {
    index_[static_cast<std::size_t>(2 * sample)] = static_cast<T>(position);
    index_[static_cast<std::size_t>(2 * sample + 1)] = static_cast<T>(offset);
  }

  void cut_block(std::size_t block) {
    const std::size_t first = block * kBlock, count = std::min(kBlock, documents_.size() - first);
    std::array<std::int32_t, kBlock> lengths;
    std::int64_t tokens = 0;
    for (std::size_t i = 0; i < count; ++i) {
      lengths[i] = static_cast<std::int32_t>(length(first + i));
      tokens += lengths[i];
    }
    begins_[block].wait(kUnknown);
    std::int64_t begin = begins_[block];
    begins_[block + 1] = begin + tokens;
    begins_[block + 1].notify_one();

    std::int64_t sample = std::max<std::int64_t>(
        1, (begin - extra_ + input_.sequence_length) / input_.sequence_length);
    std::int64_t token = last_token(sample);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t end = begin + lengths[i];
      for (; token < end && sample <= samples_; ++sample, token += input_.sequence_length)
        record(sample, first + i, token - begin + 1 - extra_);
      begin = end;
    }
  }

  const GptIndexInput& input_;
  std::span<const std::int32_t> documents_;
  std::int64_t samples_, extra_;
  LargeArray<T> index_;
  std::vector<std::atomic<std::int64_t>> begins_;  ///< the first token of each block, or kUnknown
};

template <class T>
NpyArray build_shuffle_index(const std::array<std::size_t, 2>& parts, RandomState& random) {
  LargeArray<T> index(parts[0] + parts[1]);
  std::iota(index.span().begin(), index.span().end(), T{0});
  random.shuffle(index.span().first(parts[0]));
  random.shuffle(index.span().last(parts[1]));
  return NpyArray(std::move(index));
}

NpyArray build_shuffle_index(const EpochPlan& plan, RandomState& random) {
  const auto total = static_cast<std::size_t>(plan.total_samples);
  const std::array<std::size_t, 2> parts = shuffled_parts(
      total, total - static_cast<std::size_t>(plan.samples_before_final_epoch), plan);
  const bool wide = total >= std::numeric_limits<std::uint32_t>::max() - 1;
  return wide ? build_shuffle_index<std::int64_t>(parts, random)
              : build_shuffle_index<std::uint32_t>(parts, random);
}

}  // namespace

EpochPlan plan_epochs(const GptIndexInput& input) {
  const std::int64_t extra = input.add_extra_token ? 1 : 0, sequence = input.sequence_length;
  EpochPlan plan;
  plan.tokens_per_epoch = total_tokens(input.lengths, input.begin, input.end);
  if (input.num_samples) {
    MEGATRON_CHECK(plan.tokens_per_epoch > 0, "documents ", input.begin, " to ", input.end,
                   " are empty");
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

/// Samples are shuffled in a thread of their own: that needs nothing but their number and the
/// random numbers behind those of the documents, which are drawn twice.
GptIndex build_gpt_index(const GptIndexInput& input) {
  const EpochPlan plan = plan_epochs(input);
  std::future<NpyArray> shuffled = std::async(std::launch::async, [&input, &plan] {
    RandomState random(input.seed);
    for (const std::size_t part : document_parts(input, plan)) random.skip_shuffle(part);
    return build_shuffle_index(plan, random);
  });
  RandomState random(input.seed);
  LargeArray<std::int32_t> documents = build_document_index(input, plan, random);
  const bool wide = documents.size() > std::numeric_limits<std::int32_t>::max();
  GptIndex index;
  index.sample_index =
      wide ? SampleCutter<std::int64_t>(input, documents.span(), plan.total_samples).cut()
           : SampleCutter<std::int32_t>(input, documents.span(), plan.total_samples).cut();
  index.shuffle_index = shuffled.get();
  index.document_index = NpyArray(std::move(documents));
  return index;
}

}  // namespace megatron
