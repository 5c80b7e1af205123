#include "megatron/optimizer/optimizer_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "kernels/block_sums.h"
#include "kernels/cpu/conversions.h"
#include "kernels/cpu/state_codes.h"

namespace megatron {
namespace {

constexpr std::int64_t kBlock = kernels::kStateBlock;

std::int64_t blocks_of(const ParameterPiece& piece) { return (piece.count + kBlock - 1) / kBlock; }

}  // namespace

StateFormat state_format(const std::string& name, bool is_non_negative) {
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp16") return at::kHalf;
  if (name == "int8")
    return {at::kByte,
            is_non_negative ? &kernels::unsigned_dynamic_code() : &kernels::dynamic_code()};
  if (name == "fp8") return {at::kByte, &kernels::e4m3_code(is_non_negative)};
  return at::kFloat;
}

OptimizerState::OptimizerState(std::string name, const ParamStore& store, StateFormat format,
                               const std::function<bool(const Parameter&)>& selects,
                               const std::shared_ptr<const StateOffload>& offload)
    : name_(std::move(name)), pieces_(store.pieces()), format_(format) {
  if (offload)
    offloaded_ = std::make_unique<OffloadedArray>(
        offload, store,
        OffloadedArray::Options{
            .dtype = format.dtype,
            .has_scales = format_.has_scales(),
            .device = store.device(),
            .selects = [&](std::size_t i) { return selects(*pieces_[i].parameter); }});
  std::vector<bool> is_in_memory;
  std::vector<std::int64_t> num_blocks(store.buckets().size(), 0);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    is_in_memory.push_back(selects(*pieces_[i].parameter) && !(offload && offload->contains(i)));
    if (is_in_memory[i]) num_blocks[pieces_[i].bucket] += blocks_of(pieces_[i]);
  }
  const auto options = at::TensorOptions().device(store.device());
  std::vector<at::Tensor> scales;
  for (const std::int64_t blocks : num_blocks) {
    storage_.push_back(at::zeros({blocks * kBlock}, options.dtype(format.dtype)));
    if (format_.has_scales()) scales.push_back(at::ones({blocks}, options.dtype(at::kFloat)));
  }
  std::vector<std::int64_t> next_block(num_blocks.size(), 0);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const ParameterPiece& piece = pieces_[i];
    const std::int64_t begin = next_block[piece.bucket],
                       blocks = is_in_memory[i] ? blocks_of(piece) : 0;
    next_block[piece.bucket] += blocks;
    tensors_.push_back(is_in_memory[i]
                           ? storage_[piece.bucket].narrow(0, begin * kBlock, piece.count)
                           : at::Tensor());
    if (format_.has_scales())
      scales_.push_back(is_in_memory[i] ? scales[piece.bucket].narrow(0, begin, blocks)
                                        : at::Tensor());
  }
  storage_.insert(storage_.end(), scales.begin(), scales.end());
}

std::int64_t OptimizerState::num_bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : storage_) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

OptimizerState::Stored OptimizerState::load(std::size_t index) {
  if (tensors_[index].defined())
    return {tensors_[index], format_.has_scales() ? scales_[index] : at::Tensor()};
  const auto options = at::TensorOptions().device(offloaded_->device());
  Stored stored{.elements = at::empty({pieces_[index].count}, options.dtype(format_.dtype)),
                .scales = {}};
  if (format_.has_scales())
    stored.scales = at::empty({blocks_of(pieces_[index])}, options.dtype(at::kFloat));
  offloaded_->read_piece(index, [&](std::size_t window, std::size_t r, const SumRange& range) {
    stored.elements.narrow(0, range.begin, range.count).copy_(offloaded_->elements(window, r));
    if (!format_.has_scales()) return;
    const at::Tensor scales = offloaded_->scales(window, r);
    stored.scales.narrow(0, range.begin / kBlock, scales.numel()).copy_(scales);
  });
  return stored;
}

void OptimizerState::store(std::size_t index, const Stored& stored) {
  if (tensors_[index].defined()) {
    tensors_[index].copy_(stored.elements);
    if (format_.has_scales()) scales_[index].copy_(stored.scales);
    return;
  }
  offloaded_->visit_piece(index, [&](std::size_t window, std::size_t r, const SumRange& range) {
    offloaded_->elements(window, r).copy_(stored.elements.narrow(0, range.begin, range.count));
    if (!format_.has_scales()) return;
    at::Tensor scales = offloaded_->scales(window, r);
    scales.copy_(stored.scales.narrow(0, range.begin / kBlock, scales.numel()));
  });
}

at::Tensor OptimizerState::decode(const Stored& stored) const {
  const at::Tensor packed = stored.elements.cpu(), scales = stored.scales.cpu();
  at::Tensor values = at::empty(packed.sizes(), packed.options().dtype(at::kFloat));
  if (format_.code != nullptr)
    kernels::conversions().decode_bytes(*format_.code, packed.const_data_ptr<std::uint8_t>(),
                                        scales.const_data_ptr<float>(),
                                        values.mutable_data_ptr<float>(), values.numel());
  else
    kernels::conversions().decode_blocks(static_cast<const std::uint16_t*>(packed.const_data_ptr()),
                                         scales.const_data_ptr<float>(),
                                         values.mutable_data_ptr<float>(), values.numel());
  return values;
}

OptimizerState::Stored OptimizerState::encode(const at::Tensor& values) const {
  const std::int64_t blocks = (values.numel() + kBlock - 1) / kBlock;
  const Stored stored{at::empty(values.sizes(), values.options().dtype(format_.dtype)),
                      at::empty({blocks}, values.options())};
  const auto* from = values.const_data_ptr<float>();
  auto* scales = stored.scales.mutable_data_ptr<float>();
  if (format_.code != nullptr)
    kernels::conversions().encode_bytes(*format_.code, from,
                                        stored.elements.mutable_data_ptr<std::uint8_t>(), scales,
                                        values.numel());
  else
    kernels::conversions().encode_blocks(
        from, static_cast<std::uint16_t*>(stored.elements.mutable_data_ptr()), scales,
        values.numel());
  return stored;
}

at::Tensor OptimizerState::read(std::size_t index) {
  const Stored stored = load(index);
  return format_.has_scales() ? decode(stored) : stored.elements;
}

void OptimizerState::visit(const Visitor& visitor) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!has(i)) continue;
    at::Tensor values = read(i);
    visitor(pieces_[i], name_, values);
    if (format_.has_scales())
      store(i, encode(values));
    else if (!tensors_[i].defined())  // otherwise it was filled in place
      store(i, {values, {}});
  }
}

void OptimizerState::list(const Lister& lister) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (has(i)) lister(pieces_[i], name_, format_.visible_dtype(), [this, i] { return read(i); });
  }
}

}  // namespace megatron
