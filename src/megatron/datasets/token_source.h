// The interface of a dataset's token source: numbered sequences of token ids, on disk
// (IndexedDataset) or computed (MockTokenSource).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace megatron {

/// A view of an array of values at any alignment, as in .idx files.
template <class T>
class UnalignedView {
 public:
  UnalignedView() = default;
  UnalignedView(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_ * sizeof(T)}; }
  T operator[](std::size_t i) const {
    T value;
    std::memcpy(&value, data_ + i * sizeof(T), sizeof(T));
    return value;
  }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Returns the number of tokens of the sequences begin … end − 1.
inline std::int64_t total_tokens(const UnalignedView<std::int32_t>& lengths, std::int64_t begin,
                                 std::int64_t end) {
  std::int64_t total = 0;
  for (std::int64_t i = begin; i < end; ++i) total += lengths[static_cast<std::size_t>(i)];
  return total;
}

/// Numbered sequences of token ids. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  /// Returns the name for errors: the path prefix, or "mock data".
  virtual std::string name() const = 0;
  /// Returns the number of tokens of every sequence.
  virtual UnalignedView<std::int32_t> sequence_lengths() const = 0;
  /// Checks every sequence at most once. Call it before relying on sequence_lengths(). Throws a
  /// UserError that names the first invalid sequence. It reads the whole index.
  virtual void check() const {}
  /// Fills `tokens` from `sequence`, starting at token `offset`. Fails when the sequence ends
  /// earlier.
  virtual void read(std::int64_t sequence, std::int64_t offset,
                    std::span<std::int64_t> tokens) const = 0;
};

}  // namespace megatron
