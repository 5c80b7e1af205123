// Reads JSON schemas: what they refer to, and one schema for several that must all hold.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// The keywords of a document of schemas.
class SchemaReader {
 public:
  /// `root` must outlive the reader.
  explicit SchemaReader(const OrderedJson& root) : root_(root) {}

  /// Returns a schema without the keywords that say nothing of values. That of `false` is
  /// {"enum": []}, and const is an enum. UserError that names `place` if it is no schema or has a
  /// keyword that is not supported.
  OrderedJson keywords(const OrderedJson& schema, const std::string& place) const;
  /// Returns the schema that a $ref names.
  const OrderedJson& resolve(const OrderedJson& reference, const std::string& place) const;
  /// Returns keywords() with those of $ref and allOf among them.
  OrderedJson flatten(const OrderedJson& schema, const std::string& place, int depth = 0) const;
  /// Returns the keywords of two flat schemas that must both hold.
  OrderedJson merge(OrderedJson a, OrderedJson b, const std::string& place) const;
  /// Returns whether it is certain that no value fits both schemas.
  bool are_disjoint(const OrderedJson& a, const OrderedJson& b, const std::string& place,
                    int depth = 0) const;

 private:
  const OrderedJson& root_;
  mutable int num_flattened_ = 0;
};

/// Throws UserError: a keyword at a place is not supported.
[[noreturn]] void refuse_keyword(const std::string& place, std::string_view keyword,
                                 const std::string& problem = "it is not supported");

/// Returns the types of a flat schema's values: those of "type", or else of its keywords, or all.
std::set<std::string> types_of_schema(const OrderedJson& flat);

}  // namespace megatron
