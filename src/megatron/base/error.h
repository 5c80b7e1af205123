// The kinds of failure: a mistake of the user (UserError, exit 2), a broken invariant (CHECK, exit
// 1), and faulty hardware, after which the same run may succeed.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace megatron {

/// A mistake in flags, files, data or the machine. It is printed without a stack as "what: got" and
/// a line "fix: fix"; the exit code is 2. `what` names the file, field or flag, `got` states the
/// value found or what is wrong with it, and `fix` says what to do. `got` and `fix` may be empty.
class UserError : public std::runtime_error {
 public:
  struct Parts {
    std::string what;
    std::string got;
    std::string fix;
    /// Returns "what: got", or "what" when `got` is empty.
    std::string problem() const;
    /// Returns "what: got; fix", without what is empty.
    std::string one_line() const;
  };
  explicit UserError(Parts parts);
  explicit UserError(const std::string& what) : UserError(Parts{what, {}, {}}) {}
  const Parts& parts() const { return parts_; }

 private:
  Parts parts_;
};

/// A broken invariant of the program. It is printed with file and line; the exit code is 1.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Results that only faulty hardware explains. The exit code is 1, so that a launcher starts the
/// ranks again.
class HardwareError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {
[[noreturn]] void check_failed(const char* expression, const char* file, int line,
                               const std::string& message);

template <class... Args>
std::string concatenate(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}
}  // namespace detail

}  // namespace megatron

/// Throws InternalError with the expression and the streamed message if `condition` is false. The
/// check is active in every build type.
#define MEGATRON_CHECK(condition, ...)                                            \
  ((condition) ? (void)0                                                          \
               : ::megatron::detail::check_failed(#condition, __FILE__, __LINE__, \
                                                  ::megatron::detail::concatenate(__VA_ARGS__)))
