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
[[gnu::always_inline]] inline A combine(A total, A next) {
  if constexpr (kOp == ReduceOp::max) return total > next || total != total ? total : next;
  if constexpr (kOp == ReduceOp::min) return total < next || total != total ? total : next;
  return static_cast<A>(total + next);
}

template <class T, ReduceOp kOp>
[[gnu::always_inline]] inline void reduce_block(T* out, const std::vector<const void*>& inputs, std::int64_t begin, std::int64_t count) {
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
[[gnu::always_inline]] inline void reduce_all(void* out, const std::vector<const void*>& inputs, std::int64_t elements) {
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    reduce_block<T, kOp>(static_cast<T*>(out), inputs, begin, std::min(kBlock, elements - begin));
  }
}

template <class T>
[[gnu::always_inline]] inline void reduce_type(void* out, const std::vector<const void*>& inputs, std::int64_t elements, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_all<T, ReduceOp::sum>(out, inputs, elements);
    case ReduceOp::max:
      return reduce_all<T, ReduceOp::max>(out, inputs, elements);
    case ReduceOp::min:
      return reduce_all<T, ReduceOp::min>(out, inputs, elements);
    case ReduceOp::average:
      return reduce_all<T, ReduceOp::average>(out, inputs, elements);
  }
}

[[gnu::always_inline]] inline void reduce_any(void* out, const std::vector<const void*>& inputs, std::int64_t elements, c10::ScalarType type,
                                              ReduceOp op) {
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
    default:
      return reduce_type<std::uint8_t>(out, inputs, elements, op);
  }
}

// One body, compiled for three instruction sets; all give the same bits.
using Reduce = void (*)(void*, const std::vector<const void*>&, std::int64_t, c10::ScalarType, ReduceOp);

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void reduce_avx512(void* out, const std::vector<const void*>& inputs, std::int64_t elements,
                                                                         c10::ScalarType type, ReduceOp op) {
  reduce_any(out, inputs, elements, type, op);
}
[[gnu::target("avx2")]] void reduce_avx2(void* out, const std::vector<const void*>& inputs, std::int64_t elements, c10::ScalarType type,
                                         ReduceOp op) {
  reduce_any(out, inputs, elements, type, op);
}
void reduce_baseline(void* out, const std::vector<const void*>& inputs, std::int64_t elements, c10::ScalarType type, ReduceOp op) {
  reduce_any(out, inputs, elements, type, op);
}

Reduce reduce_of_this_processor() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return reduce_avx512;
  return __builtin_cpu_supports("avx2") ? reduce_avx2 : reduce_baseline;
}

}  // namespace

void reduce_inputs(void* out, const std::vector<const void*>& inputs, std::int64_t elements, c10::ScalarType type, ReduceOp op) {
  const auto known = {c10::ScalarType::Float, c10::ScalarType::BFloat16, c10::ScalarType::Half, c10::ScalarType::Double,
                      c10::ScalarType::Long,  c10::ScalarType::Int,      c10::ScalarType::Byte};
  MEGATRON_CHECK(std::find(known.begin(), known.end(), type) != known.end(), "ranks cannot reduce tensors of ", c10::toString(type));
  MEGATRON_CHECK(op != ReduceOp::average || c10::isFloatingType(type), "an average of integers between ranks");
  static const Reduce reduce = reduce_of_this_processor();
  reduce(out, inputs, elements, type, op);
}

}  // namespace megatron
