// JSON that is checked while it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace megatron {

/// Reads one value, and writes it as JSON. Commas before an end are mended, and in texts control
/// characters and backslashes that begin no escape. Anything else that is no JSON breaks the value,
/// as do a key that the outermost object has twice and more than 200 levels.
///   JsonStream value;
///   used = value.read(text);
///   send(value.take());
class JsonStream {
 public:
  enum class Syntax : std::uint8_t {
    json,
    python,  ///< literals of Python too, and (a=1, b="x"), which becomes an object
  };
  explicit JsonStream(Syntax syntax = Syntax::json) : is_python_(syntax == Syntax::python) {}

  /// Returns how many characters of `text`, which continues the value, belong to it.
  std::size_t read(std::string_view text);
  /// The value is whole. A number at its outermost level ends with the character after it.
  bool is_done() const { return state_ == State::done; }
  bool is_broken() const { return state_ == State::broken; }
  /// Returns what is new of the JSON. It holds back keys and numbers until they are whole, so that
  /// close() can follow anything but the middle of a text.
  std::string take();
  /// Returns how many characters that were read last are held back.
  std::size_t num_held() const { return num_held_; }
  /// Returns the brackets that are open.
  std::string close() const;

 private:
  /// name: a key without quotes. A key, and a value of a list, may also be the end.
  enum class State : std::uint8_t { value, key, name, colon, comma, text, scalar, done, broken };

  bool step(char c);
  bool take_mark(char c);
  bool end_key();
  bool end_scalar();
  void read_text(char c);
  void end_value();
  void keep();

  bool is_python_;
  State state_ = State::value;
  std::string closers_;  ///< the brackets to come, as they are read
  std::string ready_, held_, scalar_, escape_;
  std::size_t num_held_ = 0, key_begin_ = 0;
  std::set<std::string> keys_;  ///< of the outermost object
  char quote_ = '"';
  bool is_key_ = false;
};

/// Returns the JSON of a whole literal of Python or JSON; "" if `text` is none.
std::string json_of_literal(std::string_view text);

}  // namespace megatron
