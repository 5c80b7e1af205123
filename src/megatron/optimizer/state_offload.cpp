#include "megatron/optimizer/state_offload.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::int64_t kBlock = kernels::kStateBlock;
constexpr std::int64_t kScaleBytes = 4;

}  // namespace

StateOffload::StateOffload(const ParamStore& store, const std::vector<SumRange>& ranges,
                           StateOffloadOptions options)
    : options_(std::move(options)) {
  std::int64_t total = 0;
  for (const ParameterPiece& piece : store.pieces()) total += piece.count;
  const double wanted = options_.fraction * static_cast<double>(total);
  double taken = 0;
  for (const ParameterPiece& piece : store.pieces()) {
    const auto count = static_cast<double>(piece.count);
    // A piece that would end nearer to the wanted number outside than inside stays in memory.
    if (taken + count / 2 > wanted) break;
    taken += count;
    ++num_pieces_;
  }
  std::int64_t in_window = options_.window_elements;
  for (const SumRange& range : ranges) {
    if (!contains(range.piece)) break;
    if (in_window + range.count > options_.window_elements) {
      windows_.emplace_back();
      in_window = 0;
    }
    windows_.back().push_back(range);
    in_window += range.count;
  }
}

OffloadedArray::OffloadedArray(std::shared_ptr<const StateOffload> offload, const ParamStore& store,
                               const Options& options)
    : offload_(std::move(offload)),
      dtype_(options.dtype),
      has_scales_(options.has_scales),
      device_(options.device),
      first_window_(store.pieces().size(), 0),
      windows_(offload_->windows().size()),
      visited_(windows_.size()) {
  for (std::size_t i = 0; i < store.pieces().size(); ++i)
    is_selected_.push_back(offload_->contains(i) && options.selects(i));
  for (std::size_t w = windows_.size(); w-- > 0;) {
    for (const SumRange& range : offload_->windows()[w]) {
      first_window_[range.piece] = w;
      const bool is_here = is_selected_[range.piece];
      windows_[w].first_block.push_back(is_here ? windows_[w].num_blocks : -1);
      if (is_here) windows_[w].num_blocks += (range.count + kBlock - 1) / kBlock;
    }
  }
}

std::int64_t OffloadedArray::window_bytes(const Window& window) const {
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype_));
  return window.num_blocks * (kBlock * element_bytes + (has_scales_ ? kScaleBytes : 0));
}

std::int64_t OffloadedArray::num_bytes() const {
  std::int64_t bytes = 0;
  for (const Window& window : windows_) bytes += window_bytes(window);
  return bytes;
}

void OffloadedArray::prefetch(std::size_t window) {
  if (window < windows_.size() && windows_[window].stored) windows_[window].stored->prefetch();
}

void OffloadedArray::open(std::size_t window) {
  Window& of = windows_[window];
  if (of.is_copy) close(window);
  if (of.bytes.defined() || of.num_blocks == 0) return;
  if (of.stored) {
    of.bytes = of.stored->get();
    of.stored.reset();
    return;
  }
  of.bytes = at::zeros({window_bytes(of)}, at::TensorOptions().dtype(at::kByte).device(device_));
  if (!has_scales_) return;
  const std::int64_t scale_bytes = of.num_blocks * kScaleBytes;
  of.bytes.narrow(0, window_bytes(of) - scale_bytes, scale_bytes).view(at::kFloat).fill_(1);
}

void OffloadedArray::open_copy(std::size_t window) {
  Window& of = windows_[window];
  if (of.bytes.defined()) return;
  if (of.stored) {
    of.bytes = of.stored->read();
  } else {
    open(window);
  }
  of.is_copy = true;
}

void OffloadedArray::close(std::size_t window) {
  Window& of = windows_[window];
  if (!of.bytes.defined()) return;
  if (!std::exchange(of.is_copy, false))
    of.stored = offload_->options().store->put(std::move(of.bytes));
  of.bytes = at::Tensor();
}

at::Tensor OffloadedArray::elements(std::size_t window, std::size_t index) const {
  const Window& of = windows_[window];
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype_));
  const std::int64_t block = of.first_block[index];
  MEGATRON_CHECK(of.bytes.defined() && block >= 0, "window ", window, " is not open");
  return of.bytes
      .narrow(0, block * kBlock * element_bytes,
              offload_->windows()[window][index].count * element_bytes)
      .view(dtype_);
}

at::Tensor OffloadedArray::scales(std::size_t window, std::size_t index) const {
  const Window& of = windows_[window];
  const std::int64_t begin = window_bytes(of) - of.num_blocks * kScaleBytes,
                     count = (offload_->windows()[window][index].count + kBlock - 1) / kBlock;
  MEGATRON_CHECK(has_scales_ && of.bytes.defined(), "no scales of window ", window);
  return of.bytes.narrow(0, begin + of.first_block[index] * kScaleBytes, count * kScaleBytes)
      .view(at::kFloat);
}

void OffloadedArray::visit_ranges(std::size_t piece, Access access, const RangeVisitor& visit) {
  MEGATRON_CHECK(contains(piece), "piece ", piece, " is not offloaded");
  bool is_found = false;
  for (std::size_t w = first_window_[piece]; w < windows_.size(); ++w) {
    const StateWindow& ranges = offload_->windows()[w];
    if (ranges.front().piece > piece) break;
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      if (ranges[r].piece != piece) continue;
      is_found = true;
      if (visited_ != w) flush();
      access == Access::write ? open(w) : open_copy(w);
      visited_ = w;
      visit(w, r, ranges[r]);
    }
  }
  MEGATRON_CHECK(is_found, "piece ", piece, " is offloaded, but in no window");
}

void OffloadedArray::flush() {
  if (visited_ < windows_.size()) close(visited_);
  visited_ = windows_.size();
}

}  // namespace megatron
