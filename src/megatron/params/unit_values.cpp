#include "megatron/params/unit_values.h"

#include <algorithm>
#include <utility>

namespace megatron {

UnitValues::UnitValues(const std::vector<ParamBucket>& buckets, c10::Device device, BindValues bind,
                       OffloadedValues* offloaded)
    : buckets_(buckets),
      bind_(std::move(bind)),
      offloaded_(offloaded),
      main_slices_(buckets.size()),
      buffers_(device),
      slice_buffers_(device) {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const ParamBucket& bucket = buckets[b];
    units_.resize(std::max(units_.size(), bucket.unit + 1));
    if (!bucket.has_unit_values()) continue;
    Unit& unit = units_[bucket.unit];
    unit.buckets.push_back(b);
    unit.num_bytes += bucket.complete_bytes();
    if (bucket.offloads_values && bucket.is_sharded()) unit.slice_bytes += bucket.slice_bytes();
    unit.gathers_ahead |= bucket.data_parallel->overlaps_param_gather || !bucket.is_sharded();
    for (Parameter* parameter : bucket.parameters) {
      unit_of_[parameter] = bucket.unit;
      parameter->set_read_hook(this);
    }
  }
  std::vector<std::int64_t> sizes, slices;
  bool reads_slices_ahead = false;
  for (const Unit& unit : units_) {
    reads_slices_ahead |= unit.gathers_ahead && unit.slice_bytes > 0;
    sizes.push_back(unit.num_bytes);
    slices.push_back(unit.slice_bytes);
  }
  buffers_.reserve(forward_and_backward(sizes), 2);
  slice_buffers_.reserve(forward_and_backward(slices), reads_slices_ahead ? 2 : 1);
  counters_.gathers.resize(units_.size());
}

UnitValues::~UnitValues() {
  gathered_.clear();  // a pending work waits or, while an exception unwinds, cancels by itself
  for (const ParamBucket& bucket : buckets_) {
    for (Parameter* parameter : bucket.parameters) parameter->set_read_hook(nullptr);
  }
}

void UnitValues::set_main_slice(std::size_t bucket, at::Tensor own) {
  discard();
  main_slices_.at(bucket) = std::move(own);
}

void UnitValues::forget_main_slices() {
  for (Gathered& gathered : gathered_) {
    if (gathered.is_bound) unbind(gathered);
  }
  gathered_.clear();
  slices_ahead_.reset();
  last_read_.reset();
  std::ranges::fill(main_slices_, at::Tensor());
}

void UnitValues::discard() {
  drop_slices_ahead();
  keep_latest(0);
  begin_pass();
}

std::int64_t UnitValues::held_bytes() const {
  std::int64_t bytes = buffers_.free_bytes() + slice_buffers_.free_bytes();
  const auto add = [&bytes](const at::Tensor& buffer) {
    if (buffer.defined()) bytes += buffer.numel();
  };
  for (const Gathered& gathered : gathered_) {
    add(gathered.buffer);
    add(gathered.slices);
  }
  if (slices_ahead_) add(slices_ahead_->buffer);
  return bytes;
}

void UnitValues::open(const Parameter& parameter) {
  const std::size_t unit = unit_of_.at(&parameter);
  if (last_read_ == unit) return;
  last_read_.reset();
  if (find(unit) == nullptr) {
    keep_latest(1);
    start(unit);
  }
  finish(*find(unit));
  last_read_ = unit;
  const auto is_other = [unit](const Gathered& gathered) { return gathered.unit != unit; };
  std::ranges::stable_partition(gathered_, is_other);  // the latest comes last
  order_.read(unit);
  const std::optional<std::size_t> next = order_.next();
  if (!next || !units_[*next].gathers_ahead) return;
  if (find(*next) == nullptr) {
    keep_latest(1);
    start(*next);
  }
  if (const auto following = order_.next(1)) prefetch_slices(*following);
}

at::Tensor UnitValues::start_slices(std::size_t index) {
  const Unit& unit = units_[index];
  if (unit.slice_bytes == 0) return {};
  at::Tensor buffer = slice_buffers_.take(unit.slice_bytes);
  BufferCursor cursor(buffer);
  for (const std::size_t b : unit.buckets) {
    const ParamBucket& bucket = buckets_[b];
    if (bucket.offloads_values && bucket.is_sharded())
      offloaded_->prefetch(b, cursor.next(bucket.slice_size, bucket.dtype));
  }
  return buffer;
}

void UnitValues::prefetch_slices(std::size_t unit) {
  if (find(unit) != nullptr || (slices_ahead_ && slices_ahead_->unit == unit)) return;
  drop_slices_ahead();
  if (at::Tensor buffer = start_slices(unit); buffer.defined())
    slices_ahead_ = SlicesAhead{unit, std::move(buffer)};
}

at::Tensor UnitValues::take_slices_ahead(std::size_t unit) {
  if (slices_ahead_ && slices_ahead_->unit == unit)
    return std::exchange(slices_ahead_, std::nullopt)->buffer;
  drop_slices_ahead();
  return start_slices(unit);
}

void UnitValues::drop_slices_ahead() {
  if (!slices_ahead_) return;
  SlicesAhead dropped = *std::exchange(slices_ahead_, std::nullopt);
  for (const std::size_t b : units_[dropped.unit].buckets)
    if (offloaded_->is_read_ahead(b)) offloaded_->read(b);  // ends it
  slice_buffers_.give_back(std::move(dropped.buffer));
}

UnitValues::Gathered* UnitValues::find(std::size_t unit) {
  const auto found = std::ranges::find(gathered_, unit, &Gathered::unit);
  return found == gathered_.end() ? nullptr : &*found;
}

UnitValues::Gathered& UnitValues::start(std::size_t index) {
  const Unit& unit = units_[index];
  // It joins the others when nothing can fail any more.
  Gathered gathered{
      .unit = index, .buffer = buffers_.take(unit.num_bytes), .slices = take_slices_ahead(index)};
  BufferCursor cursor(gathered.buffer);
  ++counters_.gathers[index];
  for (const std::size_t b : unit.buckets) {
    const ParamBucket& bucket = buckets_[b];
    if (!bucket.is_sharded()) {
      offloaded_->prefetch(b, cursor.next(bucket.size, bucket.dtype));
      gathered.values.emplace_back();
      gathered.precise.emplace_back();
      continue;
    }
    const at::Tensor& main = main_slices_[b];
    gathered.values.push_back(cursor.next(bucket.size, bucket.dtype));
    gathered.precise.push_back(main.defined() ? cursor.next(bucket.size, at::kFloat)
                                              : at::Tensor());
    const at::Tensor own = main.defined()           ? main
                           : bucket.offloads_values ? offloaded_->read(b)
                                                    : bucket.slice_value;
    const at::Tensor& whole = main.defined() ? gathered.precise.back() : gathered.values.back();
    gathered.works.push_back(
        bucket.data_parallel->shard.comm->start_all_gather(whole, own, "weights of a unit"));
  }
  return gathered_.emplace_back(std::move(gathered));
}

void UnitValues::wait_for_gathers(Gathered& gathered) {
  for (const PendingWork& work : std::exchange(gathered.works, {})) work->wait();
  if (gathered.slices.defined()) slice_buffers_.give_back(std::exchange(gathered.slices, {}));
}

void UnitValues::finish(Gathered& gathered) {
  if (gathered.is_bound) return;
  wait_for_gathers(gathered);
  const std::vector<std::size_t>& buckets = units_[gathered.unit].buckets;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const ParamBucket& bucket = buckets_[buckets[i]];
    const at::Tensor& precise = gathered.precise[i];
    if (!gathered.values[i].defined()) gathered.values[i] = offloaded_->read(buckets[i]);
    if (precise.defined()) gathered.values[i].copy_(precise);
    for (std::size_t p = 0; precise.defined() && p < bucket.parameters.size(); ++p)
      bucket.parameters[p]->set_main(bucket.of_parameter(precise, p));
    bind_(buckets[i], gathered.values[i]);
  }
  gathered.is_bound = true;
}

void UnitValues::unbind(const Gathered& gathered) {
  for (const std::size_t b : units_[gathered.unit].buckets) {
    for (Parameter* parameter : buckets_[b].parameters) {
      if (buckets_[b].is_precise) parameter->set_main({});
    }
    bind_(b, {});
  }
}

void UnitValues::release(Gathered& gathered) {
  if (!gathered.is_bound) {
    ++counters_.unread;
    for (const std::size_t b : units_[gathered.unit].buckets)
      if (!buckets_[b].is_sharded()) offloaded_->read(b);  // ends what start() began
  }
  wait_for_gathers(gathered);
  if (gathered.is_bound) unbind(gathered);
  gathered.values.clear();
  gathered.precise.clear();
  buffers_.give_back(std::move(gathered.buffer));
}

void UnitValues::keep_latest(std::size_t count) {
  for (; gathered_.size() > count; gathered_.pop_front()) release(gathered_.front());
}

}  // namespace megatron
