#include "megatron/models/hf/config_reader.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"

namespace megatron {

ConfigReader::ConfigReader(const Json& object, std::string source)
    : object_(Json(object), std::move(source)) {
  if (!object_->is_object())
    throw UserError(
        {object_.place() + ": must be a JSON object", std::string(object_->type_name()), ""});
}

bool ConfigReader::contains_key(const std::string& key) const { return object_->contains(key); }

const Json* ConfigReader::find(const std::string& key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::int64_t ConfigReader::integer(const std::string& key) const { return object_[key].integer(); }

double ConfigReader::number(const std::string& key) const { return object_[key].number(); }

bool ConfigReader::boolean(const std::string& key, bool default_value) const {
  return has(key) ? object_[key].boolean() : default_value;
}

std::string ConfigReader::text(const std::string& key, const std::string& default_value) const {
  return has(key) ? object_[key].text() : default_value;
}

ConfigReader ConfigReader::section(const std::string& key) const {
  const Json* value = find(key);
  return {value != nullptr ? *value : Json(Json::object()), source() + ": field '" + key + "'"};
}

void ConfigReader::unsupported(const std::string& key, const std::string& fix) const {
  const Json* value = find(key);
  std::string got = value != nullptr ? compact_json(*value) : "null";
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw UserError({source() + ": field '" + key + "' is not supported with this value", got, fix});
}

}  // namespace megatron
