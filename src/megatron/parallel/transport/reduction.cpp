#include "megatron/parallel/transport/reduction.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::int64_t kBlock = 2048;

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>, float, T>;

template <ReduceOp kOp, class A>
A combine(A total, A next) {
  if constexpr (kOp == ReduceOp::max) return total > next || total != total ? total : next;
  if constexpr (kOp == ReduceOp::min) return total < next || total != total ? total : next;
  return static_cast<A>(total + next);
}

template <class T, ReduceOp kOp>
void reduce_block(T* out, const std::vector<const void*>& inputs, std::int64_t begin, std::int64_t count) {
  using A = Accumulator<T>;
  A total[kBlock];
  const T* first = static_cast<const T*>(inputs.front()) + begin;
  for (std::int64_t i = 0; i < count; ++i) total[i] = static_cast<A>(first[i]);
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    const T* next = static_cast<const T*>(inputs[k]) + begin;
    for (std::int64_t i = 0; i < count; ++i) total[i] = combine<kOp>(total[i], static_cast<A>(next[i]));
  }
  if constexpr (kOp == ReduceOp::average) {
    const A divisor = static_cast<A>(inputs.size());
    for (std::int64_t i = 0; i < count; ++i) total[i] = static_cast<A>(total[i] / divisor);
  }
  for (std::int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<T>(total[i]);
}

template <class T, ReduceOp kOp>
void reduce_all(void* out, const std::vector<const void*>& inputs, std::int64_t elements) {
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    reduce_block<T, kOp>(static_cast<T*>(out), inputs, begin, std::min(kBlock, elements - begin));
  }
}

template <class T>
void reduce_type(void* out, const std::vector<const void*>& inputs, std::int64_t elements, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_all<T, ReduceOp::sum>(out, inputs, elements);
    case ReduceOp::max:
      return reduce_all<T, ReduceOp::max>(out, inputs, elements);
    case ReduceOp::min:
      return reduce_all<T, ReduceOp::min>(out, inputs, elements);
    case ReduceOp::average:
      MEGATRON_CHECK(!std::is_integral_v<T>, "an average of integers between ranks");
      return reduce_all<T, ReduceOp::average>(out, inputs, elements);
  }
}

}  // namespace

void reduce_inputs(void* out, const std::vector<const void*>& inputs, std::int64_t elements, c10::ScalarType type, ReduceOp op) {
  switch (type) {
    case c10::ScalarType::Float:
      return reduce_type<float>(out, inputs, elements, op);
    case c10::ScalarType::BFloat16:
      return reduce_type<c10::BFloat16>(out, inputs, elements, op);
    case c10::ScalarType::Half:
      return reduce_type<c10::Half>(out, inputs, elements, op);
    case c10::ScalarType::Double:
      return reduce_type<double>(out, inputs, elements, op);
    case c10::ScalarType::Long:
      return reduce_type<std::int64_t>(out, inputs, elements, op);
    case c10::ScalarType::Int:
      return reduce_type<std::int32_t>(out, inputs, elements, op);
    case c10::ScalarType::Byte:
      return reduce_type<std::uint8_t>(out, inputs, elements, op);
    default:
      MEGATRON_CHECK(false, "ranks cannot reduce tensors of ", c10::toString(type));
  }
}

}  // namespace megatron
