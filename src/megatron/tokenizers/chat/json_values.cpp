#include "megatron/tokenizers/chat/json_values.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/chat/operators.h"
#include "megatron/tokenizers/chat/printing.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::chat {
namespace {

constexpr int kDeepestJson = 150;

/// Builds values from the events of the JSON parser.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string source) : source_(std::move(source)) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(number_integer_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > INT64_MAX) refuse(": an integer is beyond 64 bits", std::to_string(value));
    return add(Value::integer(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos)
      refuse(": an integer is beyond 64 bits", text);
    return add(Value::real(value));
  }
  bool string(string_t& value) override { return add(Value::text(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(); }
  bool key(string_t& key) override {
    levels_.back().key = Value::text(std::move(key));
    return true;
  }
  bool end_object() override {
    Value value = Value::dict(std::move(levels_.back().dict));
    levels_.pop_back();
    return add(std::move(value));
  }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override {
    Value value = Value::list(std::move(levels_.back().items));
    levels_.pop_back();
    return add(std::move(value));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const bool is_range = dynamic_cast<const nlohmann::detail::out_of_range*>(&error) != nullptr;
    refuse(is_range
               ? ": a number is out of range"
               : std::string(": ") + json_fault(error) + " at byte " + std::to_string(position),
           "");
  }
  Value take() { return std::move(root_); }

 private:
  struct Level {
    Values items;
    Dict dict;
    std::optional<Value> key;
  };

  [[noreturn]] void refuse(const std::string& what, const std::string& got) const {
    throw UserError({source_ + what, got, ""});
  }
  bool open() {
    if (levels_.size() >= kDeepestJson)
      refuse(": values are nested deeper than " + std::to_string(kDeepestJson) + " levels", "");
    levels_.emplace_back();
    return true;
  }
  bool add(Value value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (Level& level = levels_.back(); level.key) {
      level.dict.set(*std::exchange(level.key, std::nullopt), std::move(value), meter_);
    } else {
      level.items.push_back(std::move(value));
    }
    return true;
  }

  std::string source_;
  std::vector<Level> levels_;
  Value root_;
  Meter meter_{RenderLimits{.work = INT64_MAX}};
};

/// Appends json.dumps() of values.
class Writer {
 public:
  Writer(const JsonStyle& style, Meter& meter) : style_(style), meter_(meter) {}

  void write(const Value& value) {
    meter_.charge(1);
    meter_.check_size(out_.size());
    switch (value.kind()) {
      case Kind::none:
        return void(out_ += "null");
      case Kind::boolean:
        return void(out_ += value.as_boolean() ? "true" : "false");
      case Kind::integer:
        return void(out_ += std::to_string(value.as_integer()));
      case Kind::real:
        return void(out_ += real(value.as_real()));
      case Kind::text:
        return write_text(value.as_text());
      case Kind::list:
      case Kind::tuple:
        return write_items('[', value.items(), ']', [&](const Value& item) { write(item); });
      case Kind::dict:
        return write_dict(value.as_dict());
      default:
        throw TemplateError("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }
  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }
  template <class Items, class WriteItem>
  void write_items(char open, const Items& items, char close, const WriteItem& write_item) {
    out_ += open;
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.between_items;
      new_line();
      write_item(items[i]);
    }
    --level_;
    if (!items.empty()) new_line();
    out_ += close;
  }
  void write_dict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(a->first, b->first, "<", meter_) < 0;
      });
    write_items('{', entries, '}', [&](const Dict::Entry* entry) {
      write_key(entry->first);
      out_ += style_.after_key;
      write(entry->second);
    });
  }
  void write_key(const Value& key) {
    if (key.is_text()) return write_text(key.as_text());
    if (!key.is_none() && !key.is_number())
      throw TemplateError("keys must be str, int, float, bool or None, not " + type_name(key));
    out_ += '"';
    write(key);
    out_ += '"';
  }
  void write_text(std::string_view text);
  void write_escape(char32_t c);

  const JsonStyle& style_;
  Meter& meter_;
  std::string out_;
  int level_ = 0;
};

void Writer::write_escape(char32_t c) {
  constexpr char kHex[] = "0123456789abcdef";
  if (c >= 0x10000) {
    write_escape(0xD800 + ((c - 0x10000) >> 10));
    return write_escape(0xDC00 + ((c - 0x10000) & 0x3FF));
  }
  out_ += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out_ += kHex[c >> shift & 15];
}

void Writer::write_text(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  meter_.charge_bytes(text.size());
  out_ += '"';
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const char32_t c = next_code_point(text, end);
    if (const std::size_t at = kEscaped.find(text[begin]); at != std::string_view::npos)
      out_.append(1, '\\').append(1, kLetters[at]);
    else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E))
      write_escape(c);
    else
      out_ += text.substr(begin, end - begin);
  }
  out_ += '"';
}

}  // namespace

Value read_json_value(std::string_view text, const std::string& source) {
  Builder builder(source);
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

std::string to_json(const Value& value, const JsonStyle& style, Meter& meter) {
  Writer writer(style, meter);
  writer.write(value);
  return writer.take();
}

}  // namespace megatron::chat
