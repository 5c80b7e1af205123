#include "megatron/datasets/webdataset/shard_order.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "megatron/base/error.h"
#include "megatron/datasets/random_state.h"

namespace megatron {
namespace {

/// Returns numpy's generator for one purpose of an epoch: 0 orders its shards, and w + 1 the
/// samples of its window w.
RandomState generator(std::uint32_t seed, std::int64_t epoch, std::int64_t purpose) {
  const auto low = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const std::array<std::uint32_t, 5> words = {seed, low(epoch), low(epoch >> 32), low(purpose),
                                              low(purpose >> 32)};
  return RandomState(std::span<const std::uint32_t>(words));
}

}  // namespace

ShardOrder::ShardOrder(std::vector<std::int64_t> shard_sizes, const ShardOrderOptions& options)
    : begins_{0}, options_(options) {
  for (const std::int64_t size : shard_sizes) begins_.push_back(begins_.back() + size);
  if (begins_.back() == 0)
    throw UserError({"the shards contain no samples", "", "check the files"});
}

std::shared_ptr<const ShardOrder::Epoch> ShardOrder::epoch(std::int64_t number) const {
  const std::lock_guard lock(mutex_);
  if (last_ && last_->number == number) return last_;
  auto made = std::make_shared<Epoch>();
  made->number = number;
  made->shards.resize(begins_.size() - 1);
  std::iota(made->shards.begin(), made->shards.end(), std::size_t{0});
  if (options_.shuffle_window > 0)
    generator(options_.seed, number, 0).shuffle(std::span(made->shards));
  made->begins = {0};
  for (const std::size_t shard : made->shards)
    made->begins.push_back(made->begins.back() + begins_[shard + 1] - begins_[shard]);
  last_ = made;
  return made;
}

std::int64_t ShardOrder::shuffled_place(std::int64_t epoch, std::int64_t place) const {
  if (options_.shuffle_window == 0) return place;
  const std::int64_t window = place / options_.shuffle_window,
                     begin = window * options_.shuffle_window;
  std::vector<std::int64_t> places(
      static_cast<std::size_t>(std::min(options_.shuffle_window, begins_.back() - begin)));
  std::iota(places.begin(), places.end(), begin);
  generator(options_.seed, epoch, window + 1).shuffle(std::span(places));
  return places[static_cast<std::size_t>(place - begin)];
}

std::int64_t ShardOrder::sample(std::int64_t position) const {
  MEGATRON_CHECK(position >= 0, "position ", position, " is negative");
  const std::int64_t number = position / begins_.back();
  const std::shared_ptr<const Epoch> order = epoch(number);
  const std::int64_t place = shuffled_place(number, position % begins_.back());
  const auto next = std::upper_bound(order->begins.begin(), order->begins.end(), place);
  const auto index = static_cast<std::size_t>(next - order->begins.begin() - 1);
  return begins_[order->shards[index]] + place - order->begins[index];
}

}  // namespace megatron
