#include "megatron/config/field_table.h"

#include <algorithm>

namespace megatron {

FieldBuilder& FieldBuilder::off_flag(std::string flag) {
  const std::string body = field_.flag().substr(2);
  std::erase(field_.off_flags, "no-" + body);
  std::erase(field_.off_flags, "disable-" + body);
  field_.off_flags.push_back(std::move(flag));
  return *this;
}

void declare_off_flags(Field& field) {
  if (!field.is_switch() || field.default_values != std::vector<std::string>{"true"}) return;
  const std::string body = field.flag().substr(2);
  field.off_flags = {"no-" + body, "disable-" + body};
}

FieldBuilder& FieldBuilder::none_is(std::string text) {
  field_.is_optional = true;
  field_.none_text = text;
  const std::vector<std::string> none{std::move(text)};
  if (field_.default_values == none) field_.default_values.clear();
  field_.set = [none, set = field_.set](void* object, std::span<const std::string> values) {
    const bool is_unset = values.size() == 1 && is_none(values[0]);
    set(object, is_unset ? none : values);
  };
  field_.get = [none, get = field_.get](const void* object) {
    std::vector<std::string> values = get(object);
    if (values == none) values.clear();
    return values;
  };
  return *this;
}

FieldBuilder& FieldBuilder::none_is_empty() {
  field_.is_optional = true;
  field_.set = [set = field_.set](void* object, std::span<const std::string> values) {
    if (values.size() == 1 && values[0].empty())
      throw FieldError{"must not be empty", "write none, or leave it out"};
    const bool is_unset = values.size() == 1 && is_none(values[0]);
    set(object, is_unset ? std::span<const std::string>() : values);
  };
  return *this;
}

}  // namespace megatron
