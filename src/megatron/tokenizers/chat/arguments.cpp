#include "megatron/tokenizers/chat/arguments.h"

#include "megatron/tokenizers/chat/operators.h"

namespace megatron::chat {

Bound::Bound(std::string_view function, Arguments arguments,
             std::initializer_list<const char*> parameters, std::size_t required)
    : function_(function), values_(parameters.size()), names_(parameters) {
  if (arguments.positional.size() > names_.size())
    throw TemplateError(function_ + " takes at most " + std::to_string(names_.size()) +
                        " arguments but " + std::to_string(arguments.positional.size()) +
                        " were given");
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.keywords) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end())
      throw TemplateError(function_ + " got an unexpected keyword argument '" + name + "'");
    auto& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place) throw TemplateError(function_ + " got multiple values for argument '" + name + "'");
    place = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i])
      throw TemplateError(function_ + " missing required argument '" + names_[i] + "'");
}

Value Bound::value(std::size_t index, Value otherwise) const {
  if (values_[index]) return *values_[index];
  return otherwise;
}

std::int64_t Bound::integer(std::size_t index, std::int64_t otherwise) const {
  if (!values_[index]) return otherwise;
  require_defined(*values_[index]);
  if (!values_[index]->is_integral())
    throw TemplateError(function_ + ": argument '" + names_[index] + "' must be an integer, not " +
                        type_name(*values_[index]));
  return values_[index]->as_integer();
}

bool Bound::truth(std::size_t index, bool otherwise) const {
  return values_[index] ? is_true(*values_[index]) : otherwise;
}

std::string Bound::text(std::size_t index, std::string otherwise) const {
  if (!values_[index]) return otherwise;
  require_defined(*values_[index]);
  if (!values_[index]->is_text())
    throw TemplateError(function_ + ": argument '" + names_[index] + "' must be a str, not " +
                        type_name(*values_[index]));
  return values_[index]->as_text();
}

}  // namespace megatron::chat
