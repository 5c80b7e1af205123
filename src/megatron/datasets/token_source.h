// What a dataset draws from: numbered sequences of token ids. On disk (IndexedDataset) or computed
// (MockTokenSource).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace megatron {

/// A view of values packed in bytes at any alignment, as in .idx files.
template <class T>
class UnalignedView {
 public:
  UnalignedView() = default;
  UnalignedView(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::size_t size() const { return size_; }
  T operator[](std::size_t i) const {
    T value;
    std::memcpy(&value, data_ + i * sizeof(T), sizeof(T));
    return value;
  }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Sequences of token ids that many threads may read at once.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// How errors name it: the path prefix, or "mock data".
  virtual std::string name() const = 0;
  /// Tokens in every sequence.
  virtual UnalignedView<std::int32_t> sequence_lengths() const = 0;
  /// Checks every sequence, where that is needed before `sequence_lengths` can be relied on; a
  /// UserError names the first that is broken. Reads the whole index, at most once.
  virtual void check() const {}
  /// Fills `tokens` from `sequence`, starting at token `offset`; a UserError when the sequence ends
  /// before.
  virtual void read(std::int64_t sequence, std::int64_t offset,
                    std::span<std::int64_t> tokens) const = 0;
};

}  // namespace megatron
