// A member on the heap that is copied like a value: std::indirect of C++26. Its type may be
// incomplete where the class that holds it is declared, so that the header of that class does not
// include the header of T.
#pragma once

#include <memory>
#include <utility>

namespace megatron {

/// Holds one T. Copies copy the T; const access gives a const T. The special members need a
/// complete T: the holder declares its own and defines them in a source. A moved-from object may
/// only be assigned to or destroyed.
template <class T>
class Indirect {
 public:
  Indirect() : value_(std::make_unique<T>()) {}
  Indirect(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Indirect(const Indirect& other) : value_(std::make_unique<T>(*other)) {}
  Indirect(Indirect&& other) noexcept = default;
  Indirect& operator=(const Indirect& other) {
    value_ = std::make_unique<T>(*other);
    return *this;
  }
  Indirect& operator=(Indirect&& other) noexcept = default;
  Indirect& operator=(T value) {
    value_ = std::make_unique<T>(std::move(value));
    return *this;
  }
  ~Indirect() = default;

  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace megatron
