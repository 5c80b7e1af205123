// Computes which keys a block of queries sees, and lays out workspaces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/micro_kernel.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr std::int64_t kKeys = kAttentionKeys;
// Numbers of rows of a block, multiples of kPanelRows. The data of a row stay in the L1 cache, and
// GEMMs over queries are as deep as the L2 cache allows.
constexpr std::int64_t kForwardQueries = 48, kBackwardQueries = 96;

struct Span {
  std::int64_t begin, end;
  std::int64_t size() const { return end > begin ? end - begin : 0; }
};

inline std::int64_t blocks_of(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

/// Absolute positions of the keys that query number `i` of the call sees, regardless of documents.
/// Both ends grow with i.
inline Span visible_keys(const AttentionArguments& a, std::int64_t i) {
  const std::int64_t position = a.q_start + i;
  Span seen{a.k_start, a.k_start + a.sk};
  if (a.causal) seen.end = std::min(seen.end, position + 1);
  if (a.window[0] >= 0) seen.begin = std::max(seen.begin, position - a.window[0]);
  if (a.window[1] >= 0) seen.end = std::min(seen.end, position + a.window[1] + 1);
  if (a.chunk > 0) {
    const std::int64_t first = position / a.chunk * a.chunk;
    seen = {std::max(seen.begin, first), std::min(seen.end, first + a.chunk)};
  }
  return seen;
}

/// Indices of the blocks of keys that hold absolute positions [begin, end).
inline Span blocks_covering(Span keys) {
  return keys.size() == 0 ? Span{0, 0} : Span{keys.begin / kKeys, blocks_of(keys.end, kKeys)};
}

/// Indices of the blocks of keys that at least one query sees.
inline Span visible_blocks(const AttentionArguments& a) {
  return a.sq == 0 ? Span{0, 0}
                   : blocks_covering({visible_keys(a, 0).begin, visible_keys(a, a.sq - 1).end});
}

/// The rectangle of a block of keys that queries [first, first + count) see. Rows count from
/// `first`, and columns from the block's first key.
struct VisibleRange {
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t begin = 0, end = 0;
  /// Is true when a part of the rectangle, widened to whole panels of columns, is masked.
  bool partial = false;
  bool empty() const { return row_begin >= row_end || begin >= end; }
  std::int64_t panel_begin() const { return begin / kPanelColumns * kPanelColumns; }
  std::int64_t panel_end() const { return blocks_of(end, kPanelColumns) * kPanelColumns; }
};

/// Returns the documents of the keys of a sample.
inline const std::int32_t* key_documents(const AttentionArguments& a, std::int64_t sample) {
  return a.key_document_ids != nullptr ? a.key_document_ids + sample * a.key_document_stride
                                       : a.document_ids + sample * a.document_stride;
}

struct DocumentRange {
  std::int32_t least, most;
};

inline DocumentRange documents_of(const std::int32_t* ids, std::int64_t count) {
  DocumentRange range{ids[0], ids[0]};
  for (std::int64_t i = 1; i < count; ++i) {
    range.least = ids[i] < range.least ? ids[i] : range.least;
    range.most = ids[i] > range.most ? ids[i] : range.most;
  }
  return range;
}

inline VisibleRange visible_range(const AttentionArguments& a, std::int64_t sample,
                                  std::int64_t first, std::int64_t count, std::int64_t block) {
  const std::int64_t start = block * kKeys;
  VisibleRange visible{.row_end = count};
  visible.begin = std::max(visible_keys(a, first).begin, start) - start;
  visible.end = std::min(visible_keys(a, first + count - 1).end, start + kKeys) - start;
  if (visible.empty()) return {};
  while (visible.row_begin < visible.row_end &&
         visible_keys(a, first + visible.row_begin).end <= start)
    ++visible.row_begin;
  while (visible.row_begin < visible.row_end &&
         visible_keys(a, first + visible.row_end - 1).begin >= start + kKeys)
    --visible.row_end;
  if (visible.empty()) return {};
  visible.partial =
      visible_keys(a, first + visible.row_begin).end < start + visible.panel_end() ||
      visible_keys(a, first + visible.row_end - 1).begin > start + visible.panel_begin();
  if (a.document_ids != nullptr) {
    const DocumentRange keys =
        documents_of(key_documents(a, sample) + start + visible.begin, visible.end - visible.begin);
    const std::int32_t* ids = a.document_ids + sample * a.document_stride;
    const DocumentRange queries = documents_of(ids + a.q_start + first + visible.row_begin,
                                               visible.row_end - visible.row_begin);
    if (keys.most < queries.least || keys.least > queries.most) return {};
    visible.partial = visible.partial || keys.least != keys.most || queries.least != queries.most;
  }
  return visible;
}

/// Hands out parts of one allocation, aligned to 64 bytes. With null memory it only counts bytes.
class Arena {
 public:
  explicit Arena(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <class T>
  T* take(std::int64_t count) {
    T* part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += blocks_of(count * static_cast<std::int64_t>(sizeof(T)), 64) * 64;
    return part;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  char* memory_;
  std::int64_t bytes_ = 0;
};

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
