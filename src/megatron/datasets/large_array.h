// Memory for index arrays of gigabytes: filling it costs few page faults.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace megatron {

/// An array of a fixed size whose values are not initialized. A large one lies on huge pages if the
/// system grants them.
template <class T>
class LargeArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit LargeArray(std::size_t size) : size_(size) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const bool is_large = size > kHugePage / sizeof(T);
    if (size > (~std::size_t{0} >> 1) / sizeof(T)) throw std::bad_alloc();
    const std::size_t page = is_large ? kHugePage : alignof(std::max_align_t);
    const std::size_t bytes = (size * sizeof(T) + page) / page * page;
    values_.reset(static_cast<T*>(std::aligned_alloc(page, bytes)));
    if (!values_) throw std::bad_alloc();
    if (is_large) ::madvise(values_.get(), bytes, MADV_HUGEPAGE);  // advice: it may be refused
  }

  std::size_t size() const { return size_; }
  T* data() { return values_.get(); }
  const T* data() const { return values_.get(); }
  T& operator[](std::size_t i) { return values_.get()[i]; }
  const T& operator[](std::size_t i) const { return values_.get()[i]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(T* values) const { std::free(values); }
  };
  std::unique_ptr<T, Free> values_;
  std::size_t size_;
};

}  // namespace megatron
