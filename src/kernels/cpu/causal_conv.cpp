// The kernels of the causal convolution, compiled once for each instruction set.
#include "kernels/cpu/causal_conv.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"
#include "kernels/cpu/vectors.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Some channels of the inputs, weights and bias of a block, widened. The rest of the last vector
/// of channels holds zeros.
template <class T>
class ConvTile {
 public:
  using C = Compute<T>;
  using Vec = Vectors<C>;
  using V = typename Vec::V;
  static constexpr std::int64_t kChannels = 128, kRows = kConvBlockRows + 2 * (kConvTaps - 1);

  ConvTile(const CausalConvArguments& args, const ConvBlock& rows, std::int64_t first_channel)
      : a(args),
        block(rows),
        piece(a.pieces[block.piece]),
        first(first_channel),
        channels(std::min(kChannels, a.channels - first)) {
    std::fill_n(bias, kChannels, C(0));
    if (a.bias != nullptr) std::copy_n(static_cast<const C*>(a.bias) + first, channels, bias);
    std::fill_n(weight[0], kConvTaps * kChannels, C(0));
    for (std::int64_t t = 0; t < a.taps; ++t)
      std::copy_n(static_cast<const C*>(a.weight) + t * a.channels + first, channels, weight[t]);
  }

  /// Loads the rows before `end` that the block's sums read: inputs[i] is row begin − (taps − 1) +
  /// i of the piece.
  void load_inputs(std::int64_t end) {
    for (std::int64_t row = block.begin - (a.taps - 1); row < end; ++row) {
      C* to = inputs[row - block.begin + a.taps - 1];
      std::fill_n(to, kChannels, C(0));
      if (row >= 0) {
        const T* from = static_cast<const T*>(a.x) + (piece.row + row) * a.row_stride +
                        piece.column * a.column_stride + first;
        for (std::int64_t c = 0; c < channels; ++c) to[c] = load(from[c]);
      } else if (a.initial_states != nullptr) {
        const T* from = static_cast<const T*>(a.initial_states) + state_of(row);
        for (std::int64_t c = 0; c < channels; ++c) to[c] = load(from[c * (a.taps - 1)]);
      }
    }
  }

  /// Returns the sum of a row of the block, or of a row behind it, for the channels from c on.
  V sum(std::int64_t row, std::int64_t c) const {
    V z = Vec::load(bias + c);
    for (std::int64_t t = 0; t < a.taps; ++t)
      z = multiply_add(Vec::load(weight[t] + c), Vec::load(inputs[row - block.begin + t] + c), z);
    return z;
  }

  /// Returns the place in a state of the first channel of row −1, −2, …
  std::int64_t state_of(std::int64_t row) const {
    return (block.piece * a.channels + first) * (a.taps - 1) + a.taps - 1 + row;
  }
  std::int64_t element(std::int64_t row) const {
    return ((piece.row + row) * a.b + piece.column) * a.channels + first;
  }

  const CausalConvArguments& a;
  const ConvBlock& block;
  const RowPiece& piece;
  const std::int64_t first, channels;
  alignas(64) C inputs[kRows][kChannels], weight[kConvTaps][kChannels], bias[kChannels];
};

template <class T>
void forward_tile(const CausalConvForwardArguments& a, ConvTile<T>& tile) {
  using C = Compute<T>;
  const ConvBlock& block = tile.block;
  tile.load_inputs(block.end);
  for (std::int64_t row = block.begin; row < block.end; ++row) {
    T* out = static_cast<T*>(a.out) + tile.element(row);
    for (std::int64_t c = 0; c < tile.channels; c += kLanesOf<C>) {
      const auto z = tile.sum(row, c);
      Vectors<C>::store(out + c, tile.channels - c, a.silu ? Silu::at(z).value : z);
    }
  }
  if (a.final_states == nullptr || block.end < tile.piece.count) return;
  for (std::int64_t i = 1; i < a.taps; ++i) {
    T* to = static_cast<T*>(a.final_states) + tile.state_of(-i);
    const C* from = tile.inputs[block.end - block.begin + a.taps - 1 - i];
    for (std::int64_t c = 0; c < tile.channels; ++c) store(to[c * (a.taps - 1)], from[c]);
  }
}

template <class T>
void backward_tile(const CausalConvBackwardArguments& a, ConvTile<T>& tile, std::int64_t number) {
  using C = Compute<T>;
  using Vec = Vectors<C>;
  const ConvBlock& block = tile.block;
  // The inputs of the block are also read by the rows behind it.
  const std::int64_t end = std::min(block.end + a.taps - 1, tile.piece.count);
  tile.load_inputs(end);
  alignas(64) C dz[ConvTile<T>::kRows][ConvTile<T>::kChannels];
  for (std::int64_t row = block.begin; row < end; ++row) {
    const T* dout = static_cast<const T*>(a.dout) + tile.element(row);
    for (std::int64_t c = 0; c < tile.channels; c += kLanesOf<C>) {
      auto d = Vec::load(dout + c, tile.channels - c);
      if (a.silu) d = d * Silu::at(tile.sum(row, c)).slope;
      Vec::store(dz[row - block.begin] + c, d);
    }
  }
  C* sums = static_cast<C*>(a.sums) + number * (a.taps + 1) * a.channels + tile.first;
  for (std::int64_t c = 0; c < tile.channels; c += kLanesOf<C>) {
    const std::int64_t count = tile.channels - c;
    for (std::int64_t row = block.begin; row < block.end; ++row) {
      auto dx = Vec::splat(0);
      for (std::int64_t later = std::min(end - 1, row + a.taps - 1); later >= row; --later)
        dx = multiply_add(Vec::load(tile.weight[a.taps - 1 - (later - row)] + c),
                          Vec::load(dz[later - block.begin] + c), dx);
      Vec::store(static_cast<T*>(a.dx) + tile.element(row) + c, count, dx);
    }
    for (std::int64_t t = 0; t <= a.taps; ++t) {
      auto sum = Vec::splat(0);
      for (std::int64_t i = 0; i < block.end - block.begin; ++i) {
        const auto d = Vec::load(dz[i] + c);
        sum = t < a.taps ? multiply_add(d, Vec::load(tile.inputs[i + t] + c), sum) : sum + d;
      }
      Vec::store(sums + t * a.channels + c, count, sum);
    }
  }
}

/// Calls use(tile, number of the block) for tiles of channels of the blocks.
template <class Use>
inline void for_each_tile(const CausalConvArguments& a, std::int64_t begin, std::int64_t end,
                          const Use& use) {
  with_type(a.type, [&]<class T>(T) {
    for (std::int64_t number = begin; number < end; ++number) {
      for (std::int64_t first = 0; first < a.channels; first += ConvTile<T>::kChannels) {
        ConvTile<T> tile(a, a.blocks[number], first);
        use(tile, number);
      }
    }
  });
}

inline void convolve(const CausalConvForwardArguments& a, std::int64_t begin, std::int64_t end) {
  for_each_tile(a, begin, end, [&](auto& tile, std::int64_t) { forward_tile(a, tile); });
}

inline void convolve_backward(const CausalConvBackwardArguments& a, std::int64_t begin,
                              std::int64_t end) {
  for_each_tile(a, begin, end,
                [&](auto& tile, std::int64_t number) { backward_tile(a, tile, number); });
}

CausalConvKernels causal_conv_kernels() { return {convolve, convolve_backward}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(CausalConvKernels, causal_conv_kernels)
