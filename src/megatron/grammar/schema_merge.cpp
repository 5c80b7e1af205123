#include "megatron/grammar/schema_merge.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/grammar/automaton.h"

namespace megatron {
namespace {

constexpr int kMostReferences = 64, kMostFlattened = 20'000;
constexpr std::size_t kMostBranches = 256;

/// Keywords that say nothing of values, or where definitions are.
const std::set<std::string_view> kAnnotations{
    "$schema",     "$id",           "$comment",        "$defs",
    "definitions", "title",         "description",     "default",
    "examples",    "deprecated",    "readOnly",        "writeOnly",
    "example",     "discriminator", "contentEncoding", "contentMediaType",
    "strict"};
const std::set<std::string_view> kStringKeywords{"minLength", "maxLength", "pattern", "format"};
const std::set<std::string_view> kNumberKeywords{"minimum", "maximum", "exclusiveMinimum",
                                                 "exclusiveMaximum"};
const std::set<std::string_view> kArrayKeywords{"items", "prefixItems", "minItems", "maxItems",
                                                "additionalItems"};
const std::set<std::string_view> kObjectKeywords{"properties", "required", "additionalProperties",
                                                 "patternProperties", "propertyNames"};
const std::set<std::string_view> kGeneralKeywords{"type",  "enum",  "const", "anyOf",
                                                  "oneOf", "allOf", "$ref"};
const std::set<std::string> kTypes{"null",   "boolean", "number", "integer",
                                   "string", "array",   "object"};

bool is_supported(std::string_view key) {
  for (const auto* keywords :
       {&kStringKeywords, &kNumberKeywords, &kArrayKeywords, &kObjectKeywords, &kGeneralKeywords})
    if (keywords->contains(key)) return true;
  return false;
}

/// Returns what both lists have.
OrderedJson common_values(const OrderedJson& a, const OrderedJson& b) {
  OrderedJson common = OrderedJson::array();
  for (const OrderedJson& value : a)
    if (std::ranges::count(b, value) > 0) common.push_back(value);
  return common;
}

OrderedJson both(const OrderedJson& a, const OrderedJson& b) {
  return a == b ? a : OrderedJson{{"allOf", OrderedJson::array({a, b})}};
}

std::set<std::string> explicit_types(const OrderedJson& flat) {
  if (!flat.contains("type")) return kTypes;
  const OrderedJson& type = flat.at("type");
  if (type.is_string()) return {type.get<std::string>()};
  return type.get<std::set<std::string>>();
}

/// Returns the types that two sets share; an integer is a number.
std::set<std::string> common_types(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::set<std::string> common;
  const auto has = [](const std::set<std::string>& types, const std::string& type) {
    return types.contains(type) || (type == "integer" && types.contains("number"));
  };
  for (const std::string& type : kTypes)
    if (has(a, type) && has(b, type)) common.insert(type);
  return common;
}

/// Requires of the members that only `from` names what `to` says of those that it does not name.
void restrict_members(OrderedJson& from, const OrderedJson& to) {
  if (!from.contains("properties") || !to.contains("additionalProperties")) return;
  for (auto& [name, value] : from.at("properties").items())
    if (!to.contains("properties") || !to.at("properties").contains(name))
      value = both(value, to.at("additionalProperties"));
}

/// Gives a schema of arrays at least `size` prefixItems: those behind its own are its items.
void extend_prefix(OrderedJson& schema, std::size_t size) {
  if (!schema.contains("items") && !schema.contains("prefixItems")) return;
  OrderedJson& prefix = schema["prefixItems"];
  while (prefix.size() < size)
    prefix.push_back(schema.contains("items") ? schema.at("items") : OrderedJson(true));
}

}  // namespace

void refuse_keyword(const std::string& place, std::string_view keyword,
                    const std::string& problem) {
  constexpr auto kForm = TextForm::json_string;  // without control characters
  throw UserError({"the JSON schema, " + place + ": keyword '" + written_text(keyword, kForm) + "'",
                   written_text(problem, kForm), "write the schema without it"});
}

std::set<std::string> types_of_schema(const OrderedJson& flat) {
  std::set<std::string> types;
  if (flat.contains("type")) {
    types = explicit_types(flat);
  } else {
    const auto has_any = [&](const std::set<std::string_view>& keywords) {
      return std::ranges::any_of(
          keywords, [&](std::string_view key) { return flat.contains(std::string(key)); });
    };
    if (has_any(kStringKeywords)) types.insert("string");
    if (has_any(kNumberKeywords)) types.insert("number");
    if (has_any(kArrayKeywords)) types.insert("array");
    if (has_any(kObjectKeywords)) types.insert("object");
    if (types.empty()) types = kTypes;
  }
  if (types.contains("number")) types.erase("integer");
  return types;
}

OrderedJson SchemaReader::keywords(const OrderedJson& schema, const std::string& place) const {
  if (schema.is_boolean())
    return schema.get<bool>() ? OrderedJson::object() : OrderedJson{{"enum", OrderedJson::array()}};
  if (!schema.is_object())
    throw UserError({"the JSON schema, " + place, "it is neither an object nor true or false", ""});
  OrderedJson kept = OrderedJson::object();
  const auto need = [&](bool holds, const std::string& key, const std::string& form) {
    if (!holds) refuse_keyword(place, key, "it is not " + form);
  };
  for (const auto& [key, value] : schema.items()) {
    if (kAnnotations.contains(key) || key.starts_with("x-")) continue;
    if ((key == "uniqueItems" || key == "nullable" || key == "unevaluatedProperties") &&
        value == (key == "unevaluatedProperties"))
      continue;
    if (!is_supported(key)) refuse_keyword(place, key);
    if (key.starts_with("min") || key.starts_with("max"))
      need(key.ends_with("imum") ? value.is_number() : value.is_number_unsigned(), key,
           key.ends_with("imum") ? "a number" : "a count");
    if (key.starts_with("exclusive")) need(value.is_number(), key, "a number");
    if (key == "properties" || key == "patternProperties")
      need(value.is_object(), key, "an object");
    if (key == "enum" || key == "anyOf" || key == "oneOf" || key == "allOf" ||
        key == "prefixItems" || key == "required")
      need(value.is_array(), key, "an array");
    if (key == "required")
      for (const OrderedJson& name : value) need(name.is_string(), key, "a list of names");
    if (key == "$ref" || key == "format") need(value.is_string(), key, "a text");
    if (key == "pattern")  // several are internal: all must match
      for (const OrderedJson& one : value.is_array() ? value : OrderedJson::array({value}))
        need(one.is_string(), key, "a text");
    if (key == "type") {
      const OrderedJson types = value.is_array() ? value : OrderedJson::array({value});
      for (const OrderedJson& type : types)
        need(type.is_string() && kTypes.contains(type.get<std::string>()), key,
             "a type or a list of types");
    }
    if (key == "items" && value.is_array())  // of older drafts
      kept["prefixItems"] = value;
    else if (key == "additionalItems")
      kept["items"] = value;
    else if (key != "const")
      kept[key] = value;
  }
  if (schema.contains("additionalItems") && schema.contains("items") &&
      !schema.at("items").is_array())
    kept["items"] = schema.at("items");
  if (schema.contains("const")) {
    const OrderedJson one = OrderedJson::array({schema.at("const")});
    kept["enum"] = kept.contains("enum") ? common_values(kept.at("enum"), one) : one;
  }
  return kept;
}

const OrderedJson& SchemaReader::resolve(const OrderedJson& reference,
                                         const std::string& place) const {
  const auto text = reference.get<std::string>();
  if (!text.starts_with("#") || (text.size() > 1 && text[1] != '/'))
    refuse_keyword(place, "$ref", "'" + text + "' is not in this schema");
  std::string pointer;
  for (std::size_t i = 1; i < text.size(); ++i) {  // decodes %xx
    const auto is_digit = [&](std::size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] == '%' && is_digit(i + 1) && is_digit(i + 2)) {
      pointer += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      pointer += text[i];
    }
  }
  try {
    return root_.at(OrderedJson::json_pointer(pointer));
  } catch (const OrderedJson::exception&) {
    refuse_keyword(place, "$ref", "there is no '" + text + "'");
  }
}

OrderedJson SchemaReader::flatten(const OrderedJson& schema, const std::string& place,
                                  int depth) const {
  OrderedJson own = keywords(schema, place);
  if (++num_flattened_ > kMostFlattened)
    throw UserError({"the JSON schema, " + place, "it refers to too many schemas", ""});
  if (depth > kMostReferences)
    throw UserError({"the JSON schema, " + place, "it refers to itself before it has a value", ""});
  std::vector<OrderedJson> parts;
  if (own.contains("$ref")) {
    parts.push_back(flatten(resolve(own.at("$ref"), place), place, depth + 1));
    own.erase("$ref");
  }
  if (own.contains("allOf")) {
    for (const OrderedJson& part : own.at("allOf"))
      parts.push_back(flatten(part, place + "/allOf", depth + 1));
    own.erase("allOf");
  }
  for (OrderedJson& part : parts) own = merge(std::move(part), std::move(own), place);
  return own;
}

OrderedJson SchemaReader::merge(OrderedJson a, OrderedJson b, const std::string& place) const {
  if (a.empty()) return b;
  if (a.contains("patternProperties") || b.contains("patternProperties")) {
    const auto has_members = [](const OrderedJson& schema) {
      return schema.contains("properties") || schema.contains("patternProperties") ||
             schema.contains("additionalProperties");
    };
    if (has_members(a) && has_members(b))
      refuse_keyword(place, "patternProperties", "allOf with other members is not supported");
  }
  const OrderedJson before = a;
  restrict_members(a, b);
  restrict_members(b, before);
  if (a.contains("prefixItems") || b.contains("prefixItems")) {
    const std::size_t size = std::max(a.value("prefixItems", OrderedJson()).size(),
                                      b.value("prefixItems", OrderedJson()).size());
    extend_prefix(a, size);
    extend_prefix(b, size);
  }
  for (auto& [key, value] : b.items()) {
    if (!a.contains(key)) {
      a[key] = value;
      continue;
    }
    OrderedJson& own = a[key];
    if (own == value) continue;
    if (key == "type") {
      own = common_types(explicit_types(a), explicit_types(b));
      if (own.empty()) return {{"enum", OrderedJson::array()}};
    } else if (key == "enum") {
      own = common_values(own, value);
    } else if (key == "properties") {
      for (auto& [name, member] : value.items())
        own[name] = own.contains(name) ? both(own.at(name), member) : member;
    } else if (key == "prefixItems") {
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = both(own[i], value[i]);
    } else if (key == "required") {
      for (const OrderedJson& name : value)
        if (std::ranges::count(own, name) == 0) own.push_back(name);
    } else if (key == "additionalProperties" || key == "items" || key == "propertyNames") {
      own = both(own, value);
    } else if (key.starts_with("min") || key == "exclusiveMinimum") {
      own = std::max(own, value);
    } else if (key.starts_with("max") || key == "exclusiveMaximum") {
      own = std::min(own, value);
    } else if (key == "pattern") {
      OrderedJson all = own.is_array() ? own : OrderedJson::array({own});
      for (const OrderedJson& one : value.is_array() ? value : OrderedJson::array({value}))
        all.push_back(one);
      own = all;
    } else if (key == "anyOf") {
      OrderedJson pairs = OrderedJson::array();
      for (const OrderedJson& x : own)
        for (const OrderedJson& y : value) pairs.push_back(both(x, y));
      if (pairs.size() > kMostBranches) refuse_keyword(place, key, "it has too many branches");
      own = pairs;
    } else {
      refuse_keyword(place, key, "allOf with two of them is not supported");
    }
  }
  return a;
}

bool SchemaReader::are_disjoint(const OrderedJson& a, const OrderedJson& b,
                                const std::string& place, int depth) const {
  if (a.contains("enum") && b.contains("enum"))
    return common_values(a.at("enum"), b.at("enum")).empty();
  if (common_types(explicit_types(a), explicit_types(b)).empty()) return true;
  const std::set<std::string> object{"object"};
  if (depth > 2 || types_of_schema(a) != object || types_of_schema(b) != object) return false;
  if (!a.contains("required") || !b.contains("required") || !a.contains("properties") ||
      !b.contains("properties"))
    return false;
  return std::ranges::any_of(
      common_values(a.at("required"), b.at("required")), [&](const OrderedJson& key) {
        const auto name = key.get<std::string>();
        return a.at("properties").contains(name) && b.at("properties").contains(name) &&
               are_disjoint(flatten(a.at("properties").at(name), place),
                            flatten(b.at("properties").at(name), place), place, depth + 1);
      });
}

}  // namespace megatron
