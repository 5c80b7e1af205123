// JSON that is only written. It prints the same bytes as nlohmann::ordered_json::dump(), and its
// users compile in a third of the time.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

/// A JSON value to print: null, a scalar, an array, or an object that keeps the order of its keys.
/// A braced list of {key, value} is an object:
///   JsonText json{{"rank", 0}, {"shape", JsonText::array({2, 3})}};
///   json["loss"] = 1.5;
///   std::cout << json.dump();  // {"rank":0,"shape":[2,3],"loss":1.5}
class JsonText {
 public:
  struct Member;

  JsonText(std::nullptr_t = nullptr);
  JsonText(bool value);
  JsonText(double value);  ///< NaN and infinities are printed as null
  JsonText(const char* text);
  JsonText(const std::string& text);
  JsonText(std::string_view text);
  JsonText(std::initializer_list<Member> members);
  template <std::integral T>
  JsonText(T value) : JsonText(Kind::scalar, std::to_string(value)) {}
  /// Returns null if there is no value.
  template <class T>
  JsonText(const std::optional<T>& value) : JsonText() {
    if (value) *this = *value;
  }
  template <class T>
  JsonText(const std::vector<T>& values) : JsonText(array()) {
    for (const T& value : values) push_back(value);
  }
  JsonText(const JsonText& other);
  JsonText(JsonText&& other) noexcept;
  JsonText& operator=(const JsonText& other);
  JsonText& operator=(JsonText&& other) noexcept;
  ~JsonText();

  static JsonText array(std::initializer_list<JsonText> values = {});
  static JsonText object();
  /// Returns a value whose JSON is `json`, as it is.
  static JsonText verbatim(std::string json) { return JsonText(Kind::scalar, std::move(json)); }

  /// Returns the member `key` of an object, added as null if it is absent. Null becomes an object.
  JsonText& operator[](std::string_view key);
  /// Removes the member `key` of an object if there is one.
  void erase(std::string_view key);
  /// Sets all members of `object` here.
  void update(const JsonText& object);
  /// Appends to an array. Null becomes an array.
  void push_back(JsonText value);

  /// Returns the text: one line without spaces, or lines indented by `indent` spaces per level.
  /// Bytes that are not UTF-8 become U+FFFD.
  std::string dump(int indent = -1) const;

 private:
  enum class Kind { null, scalar, array, object };

  explicit JsonText(Kind kind, std::string scalar = {});
  void require(Kind kind);
  void append(std::string& out, int indent, int depth) const;

  Kind kind_ = Kind::null;
  std::string scalar_;           ///< as printed
  std::vector<Member> members_;  ///< of an array, without keys, or of an object
};

struct JsonText::Member {
  std::string key;
  mutable JsonText value;  ///< mutable, because objects take it out of initializer lists
};

}  // namespace megatron
