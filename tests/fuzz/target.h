// A fuzz target runs one parser on arbitrary bytes. libFuzzer calls it with bytes that it invents
// (fuzz_main.cpp), and a test with the inputs that once broke it (finds_test.cpp).
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace megatron::fuzz {

/// What a parser did is wrong although it did not crash.
class Find : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

struct Target {
  std::string_view name;  ///< of targets/<name>.cpp and finds/<name>/
  /// Parses `input`. A UserError is a good answer; any other exception is a find.
  void (*parse)(std::string_view input);
};

/// Returns all targets in alphabetical order.
std::span<const Target> targets();

/// Calls target.parse(). Throws a Find if it throws anything but a UserError, or a UserError whose
/// `what` is empty or has control characters other than the newlines of a list of problems.
void run(const Target& target, std::string_view input);

/// Throws a Find with `message` unless `condition` holds.
inline void require(bool condition, const std::string& message) {
  if (!condition) throw Find(message);
}

/// Returns a temporary folder of the process, which is removed at its end.
std::string input_folder();

/// Writes a file `name` with `content` in input_folder() and returns its path. A
/// file of the same name is replaced.
std::string write_input(const std::string& name, std::string_view content);

/// Takes the part of `input` before the first NUL byte, which separates the files and arguments of
/// one input. Takes all of it if there is none.
std::string_view take_part(std::string_view& input);

}  // namespace megatron::fuzz
