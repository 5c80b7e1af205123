// Binds the arguments of a call to the parameters of a built-in function.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

/// The arguments of one call by the names of the parameters.
class Bound {
 public:
  /// Throws a TemplateError that names `function` for too many arguments, a keyword that no
  /// parameter has, or fewer than `required` parameters.
  Bound(std::string_view function, Arguments arguments,
        std::initializer_list<const char*> parameters, std::size_t required = 0);

  bool has(std::size_t index) const { return values_[index].has_value(); }
  /// Returns the value; `otherwise` when it is not given.
  Value value(std::size_t index, Value otherwise = {}) const;
  /// These functions throw a TemplateError for a value of another type.
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  bool truth(std::size_t index, bool otherwise) const;
  std::string text(std::size_t index, std::string otherwise) const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
  std::vector<const char*> names_;
};

}  // namespace megatron::chat
