#include "megatron/parallel/shared_memory/reduction.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>

#include "megatron/base/cpu_instructions.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::int64_t kBlock = 2048;

struct Reduction {
  void* out;
  const std::vector<const void*>& inputs;
  std::int64_t elements;
  c10::ScalarType type;
  ReduceOp op;
  ReductionCopy copy;
};

template <class T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>, float, T>;

template <ReduceOp kOp, class A>
[[gnu::always_inline]] inline A combine(A total, A next) {
  if constexpr (kOp == ReduceOp::max) return total > next || total != total ? total : next;
  return static_cast<A>(total + next);
}

template <class T>
[[gnu::always_inline]] inline const T* block_of(const Reduction& task, std::size_t input,
                                                std::int64_t begin) {
  return static_cast<const T*>(task.inputs[input]) + begin;
}

template <class T, ReduceOp kOp>
[[gnu::always_inline]] inline void reduce_block(const Reduction& task, std::int64_t begin,
                                                std::int64_t count) {
  using A = Accumulator<T>;
  A total[kBlock];
  const T *first = block_of<T>(task, 0, begin), *second = block_of<T>(task, 1, begin);
  for (std::int64_t i = 0; i < count; ++i)
    total[i] = combine<kOp>(static_cast<A>(first[i]), static_cast<A>(second[i]));
  for (std::size_t k = 2; k < task.inputs.size(); ++k) {
    const T* next = block_of<T>(task, k, begin);
    for (std::int64_t i = 0; i < count; ++i)
      total[i] = combine<kOp>(total[i], static_cast<A>(next[i]));
  }
  if constexpr (kOp == ReduceOp::average) {
    const A divisor = static_cast<A>(task.inputs.size());
    for (std::int64_t i = 0; i < count; ++i) total[i] = static_cast<A>(total[i] / divisor);
  }
  T* out = static_cast<T*>(task.out) + begin;
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(total[i]);
  constexpr auto kItem = static_cast<std::int64_t>(sizeof(T));
  if (task.copy.to != nullptr) {
    copy_bytes(task.copy.to + begin * kItem, reinterpret_cast<const std::byte*>(out), count * kItem,
               task.copy.mode);
  }
}

template <class T, ReduceOp kOp>
[[gnu::always_inline]] inline void reduce_all(const Reduction& task) {
  for (std::int64_t begin = 0; begin < task.elements; begin += kBlock) {
    reduce_block<T, kOp>(task, begin, std::min(kBlock, task.elements - begin));
  }
}

template <class T>
[[gnu::always_inline]] inline void reduce_type(const Reduction& task) {
  switch (task.op) {
    case ReduceOp::sum:
      return reduce_all<T, ReduceOp::sum>(task);
    case ReduceOp::max:
      return reduce_all<T, ReduceOp::max>(task);
    case ReduceOp::average:
      return reduce_all<T, ReduceOp::average>(task);
  }
}

/// Every vector width gives the same bits.
struct ReduceAny {
  [[gnu::always_inline]] static void run(const Reduction& task) {
    switch (task.type) {
      case c10::ScalarType::Float:
        return reduce_type<float>(task);
      case c10::ScalarType::BFloat16:
        return reduce_type<c10::BFloat16>(task);
      case c10::ScalarType::Half:
        return reduce_type<c10::Half>(task);
      case c10::ScalarType::Double:
        return reduce_type<double>(task);
      case c10::ScalarType::Long:
        return reduce_type<std::int64_t>(task);
      case c10::ScalarType::Int:
        return reduce_type<std::int32_t>(task);
      default:
        return reduce_type<std::uint8_t>(task);
    }
  }
};

}  // namespace

void reduce_inputs(void* out, const std::vector<const void*>& inputs, std::int64_t elements,
                   c10::ScalarType type, ReduceOp op, const ReductionCopy& copy) {
  const auto known = {c10::ScalarType::Float,  c10::ScalarType::BFloat16, c10::ScalarType::Half,
                      c10::ScalarType::Double, c10::ScalarType::Long,     c10::ScalarType::Int,
                      c10::ScalarType::Byte};
  MEGATRON_CHECK(std::find(known.begin(), known.end(), type) != known.end(),
                 "ranks cannot reduce tensors of ", c10::toString(type));
  MEGATRON_CHECK(op != ReduceOp::average || c10::isFloatingType(type),
                 "ranks cannot compute an average of ", c10::toString(type));
  MEGATRON_CHECK(inputs.size() > 1, "a reduction needs at least two inputs, got ", inputs.size());
  static const auto reduce = VectorClones<ReduceAny, Reduction>::widest();
  reduce({out, inputs, elements, type, op, copy});
}

}  // namespace megatron
