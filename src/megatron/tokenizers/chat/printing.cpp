#include "megatron/tokenizers/chat/printing.h"

#include <charconv>
#include <cmath>

#include "megatron/tokenizers/chat/python_text.h"

namespace megatron::chat {
namespace {

/// Appends repr() of values. The output is checked against the limits as it grows, because lists
/// that share their items can be printed far larger than they are.
class Printer {
 public:
  explicit Printer(Meter& meter) : meter_(meter) {}

  void print(const Value& value) {
    meter_.charge(1);
    meter_.check_size(out_.size());
    switch (value.kind()) {
      case Kind::undefined:
        return void(out_ += "Undefined");
      case Kind::none:
        return void(out_ += "None");
      case Kind::boolean:
        return void(out_ += value.as_boolean() ? "True" : "False");
      case Kind::integer:
        return void(out_ += std::to_string(value.as_integer()));
      case Kind::real:
        return void(out_ += real_text(value.as_real()));
      case Kind::text:
        return print_text(value);
      case Kind::list:
        return print_items(value.items(), "[", "]");
      case Kind::tuple:
        return print_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
      case Kind::view:
        return print_view(value);
      case Kind::iterator:
        return void(out_ += "<" + value.view_name() + " object>");
      case Kind::dict:
        return print_dict(value.as_dict());
      case Kind::object:
        return void(out_ += value.as_object().print());
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void print_text(const Value& value) {
    meter_.charge_bytes(value.as_text().size());
    out_ += value.is_markup() ? "Markup(" + text_repr(value.as_text()) + ")"
                              : text_repr(value.as_text());
  }
  void print_items(const Values& items, const char* open, const char* close) {
    out_ += open;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      print(items[i]);
    }
    out_ += close;
  }
  void print_view(const Value& view) {
    out_ += view.view_name();
    if (view.view_name().ends_with(')')) return;  // range(…)
    print_items(view.items(), "([", "])");
  }
  void print_dict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      print(key);
      out_ += ": ";
      print(value);
    }
    out_ += '}';
  }

  Meter& meter_;
  std::string out_;
};

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[40];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  const std::string_view scientific(digits, static_cast<std::size_t>(end.ptr - digits));
  const std::size_t mark = scientific.find('e');
  int exponent = 0;
  const char* first = scientific.data() + mark + (scientific[mark + 1] == '+' ? 2 : 1);
  std::from_chars(first, end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto fixed = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
  std::string text(digits, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string to_text(const Value& value, Meter& meter) {
  if (value.is_text()) return value.as_text();
  if (value.is_undefined()) return {};
  return to_repr(value, meter);
}

std::string to_repr(const Value& value, Meter& meter) {
  Printer printer(meter);
  printer.print(value);
  return printer.take();
}

}  // namespace megatron::chat
