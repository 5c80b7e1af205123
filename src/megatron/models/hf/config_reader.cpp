#include "megatron/models/hf/config_reader.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"

namespace megatron {

ConfigReader::ConfigReader(const Json& object, std::string source)
    : object_(object), source_(std::move(source)) {
  if (!object_->is_object())
    throw UserError({source_ + ": must be a JSON object", std::string(object_->type_name()), ""});
}

bool ConfigReader::contains_key(const std::string& key) const { return object_->contains(key); }

const Json* ConfigReader::find(const std::string& key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::int64_t ConfigReader::integer(const std::string& key) const { return at(key).integer(); }

double ConfigReader::number(const std::string& key) const { return at(key).number(); }

bool ConfigReader::boolean(const std::string& key, bool default_value) const {
  return has(key) ? at(key).boolean() : default_value;
}

std::string ConfigReader::text(const std::string& key, const std::string& default_value) const {
  return has(key) ? at(key).text() : default_value;
}

ConfigReader ConfigReader::section(const std::string& key) const {
  const Json* value = find(key);
  return {value != nullptr ? *value : Json(Json::object()), source_ + ": field '" + key + "'"};
}

void ConfigReader::unsupported(const std::string& key, const std::string& fix) const {
  const Json* value = find(key);
  std::string got = value != nullptr ? compact_json(*value) : "null";
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw UserError({source_ + ": field '" + key + "' is not supported with this value", got, fix});
}

}  // namespace megatron
