#include "megatron/params/offloaded_values.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

void OffloadedValues::add(std::size_t index, std::int64_t size, at::TensorOptions options) {
  places_.resize(std::max(places_.size(), index + 1));
  places_[index] = {.size = size, .options = options, .stored = nullptr};
}

void OffloadedValues::flush() {
  peeked_.reset();
  if (!put_) return;
  Held held = *std::exchange(put_, std::nullopt);
  places_[held.index].stored = store_->put(std::move(held.values));
}

void OffloadedValues::prefetch(std::size_t index, at::Tensor into) {
  flush();
  Place& place = places_.at(index);
  if (!place.stored) return;
  MEGATRON_CHECK(!into.defined() || into.numel() == place.size, "a buffer of ", into.numel(),
                 " elements for ", place.size);
  place.stored->prefetch(std::move(into));
  place.is_read_ahead = true;
}

at::Tensor OffloadedValues::read(std::size_t index) {
  flush();
  Place& place = places_.at(index);
  place.is_read_ahead = false;
  return place.stored ? place.stored->read() : at::zeros({place.size}, place.options);
}

at::Tensor OffloadedValues::peek(std::size_t index) {
  if (!peeked_ || peeked_->index != index) peeked_ = Held{index, read(index)};
  return peeked_->values;
}

at::Tensor OffloadedValues::take(std::size_t index) {
  if (put_ && put_->index == index) return std::exchange(put_, std::nullopt)->values;
  flush();
  Place& place = places_.at(index);
  place.is_read_ahead = false;
  if (!place.stored) return at::zeros({place.size}, place.options);
  return std::exchange(place.stored, nullptr)->get();
}

void OffloadedValues::put(std::size_t index, at::Tensor values) {
  MEGATRON_CHECK(store_ != nullptr, "a plan of memory has no store for weights");
  MEGATRON_CHECK(values.numel() == places_.at(index).size, values.numel(),
                 " weights for a bucket of ", places_.at(index).size);
  flush();
  put_ = Held{index, std::move(values)};
}

}  // namespace megatron
