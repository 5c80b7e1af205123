// The embedding kernels, compiled once for each instruction set.
#include "kernels/cpu/embedding.h"

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Returns the row of a token, or null when another rank holds it or there is no table.
template <class T>
const T* row_of(const EmbeddingTable& table, std::int64_t token, std::int64_t columns) {
  if (table.rows == nullptr) return nullptr;
  const std::int64_t row = table.ids[token] - table.first;
  return row >= 0 && row < table.count ? static_cast<const T*>(table.rows) + row * columns
                                       : nullptr;
}

template <class T, class Out>
void look_up_tokens(const EmbeddingArguments& a, std::int64_t begin, std::int64_t end) {
  using C = Compute<T>;
  for (std::int64_t token = begin; token < end; ++token) {
    const T *word = row_of<T>(a.words, token, a.columns),
            *position = row_of<T>(a.positions, token, a.columns);
    Out* __restrict out = static_cast<Out*>(a.out) + token * a.columns;
    if (word != nullptr && position != nullptr) {
      for (std::int64_t c = 0; c < a.columns; ++c) store(out[c], load(word[c]) + load(position[c]));
    } else if (const T* only = word != nullptr ? word : position) {
      for (std::int64_t c = 0; c < a.columns; ++c) store(out[c], load(only[c]));
    } else {
      for (std::int64_t c = 0; c < a.columns; ++c) store(out[c], C{0});
    }
  }
}

template <class Y, class Grad>
void add_rows_of(const EmbeddingGradientArguments& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t token = 0; token < a.tokens; ++token) {
    const std::int64_t row = a.ids[token] - a.first;
    if (row < 0 || row >= a.count) continue;
    Grad* __restrict grad = static_cast<Grad*>(a.gradient) + row * a.columns;
    const Y* __restrict dy = static_cast<const Y*>(a.dy) + token * a.columns;
    for (std::int64_t c = begin; c < end; ++c) store(grad[c], load(grad[c]) + load(dy[c]));
  }
}

inline void look_up(const EmbeddingArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.table_type, a.out_type, [&](auto table, auto out) {
    look_up_tokens<decltype(table), decltype(out)>(a, begin, end);
  });
}

inline void add_rows(const EmbeddingGradientArguments& a, std::int64_t begin, std::int64_t end) {
  with_types(a.dy_type, a.gradient_type, [&](auto dy, auto gradient) {
    add_rows_of<decltype(dy), decltype(gradient)>(a, begin, end);
  });
}

EmbeddingKernels embedding_kernels() { return {look_up, add_rows}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(EmbeddingKernels, embedding_kernels)
