// What stops the rendering of a chat template, and the work it may take before it is stopped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace megatron::chat {

/// A mistake in a template or in what it does with a conversation. `line` is the template's line,
/// 0 where it is not known yet.
class TemplateError : public std::runtime_error {
 public:
  explicit TemplateError(const std::string& message, int line = 0)
      : std::runtime_error(message), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

/// The work that one rendering may do. It ends templates that loop or double their values.
struct RenderLimits {
  std::int64_t work = 200'000'000;  ///< steps of the interpreter, and 32 bytes copied count as one
  std::size_t value_bytes = std::size_t{1} << 28;  ///< of one text, list or the output
  int depth = 1500;                                ///< nested expressions, statements and calls
};

/// Counts the work of one rendering. charge() throws a TemplateError when it exceeds the limits.
class Meter {
 public:
  explicit Meter(const RenderLimits& limits) : limits_(limits), left_(limits.work) {}

  void charge(std::size_t steps) {
    left_ -= static_cast<std::int64_t>(std::min<std::size_t>(steps, std::size_t{1} << 60));
    if (left_ < 0) throw TemplateError("the template does not end within its limit of work");
  }
  /// Charges for a value of `bytes` bytes that is about to be made, and refuses one too large.
  void charge_bytes(std::size_t bytes) {
    check_size(bytes);
    charge(1 + bytes / 32);
  }
  void check_size(std::size_t bytes) const {
    if (bytes > limits_.value_bytes)
      throw TemplateError("a value is larger than " + std::to_string(limits_.value_bytes) +
                          " bytes");
  }
  const RenderLimits& limits() const { return limits_; }

 private:
  RenderLimits limits_;
  std::int64_t left_;
};

}  // namespace megatron::chat
