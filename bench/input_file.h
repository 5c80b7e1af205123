// The binary files that the Python programs of bench/ give to those in C++.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>

#include "megatron/base/error.h"

namespace megatron::bench {

/// Reads the int64 numbers that a file begins with.
template <std::size_t kCount>
std::array<std::int64_t, kCount> read_numbers(std::ifstream& file) {
  std::array<std::int64_t, kCount> numbers = {};
  file.read(reinterpret_cast<char*>(numbers.data()), sizeof(numbers));
  MEGATRON_CHECK(file.good(), "the inputs cannot be read");
  return numbers;
}

/// Reads the next values of a file: float32 [shape].
inline at::Tensor read_values(std::ifstream& file, at::IntArrayRef shape) {
  at::Tensor values = at::empty(shape, at::kFloat);
  file.read(static_cast<char*>(values.mutable_data_ptr()),
            static_cast<std::streamsize>(values.nbytes()));
  MEGATRON_CHECK(file.good(), "the inputs end early");
  return values;
}

}  // namespace megatron::bench
