#include "megatron/models/hf/config_reader.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/name_list.h"

namespace megatron {

ConfigReader::ConfigReader(const Json& object, std::string source)
    : object_(Json(object), std::move(source)) {
  if (!object_->is_object())
    throw UserError(
        {object_.place() + ": must be a JSON object", std::string(object_->type_name()), ""});
}

bool ConfigReader::contains_key(const std::string& key) const { return object_->contains(key); }

const Json* ConfigReader::find(const std::string& key) const {
  read_.insert(key);
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::int64_t ConfigReader::size(const std::string& key, std::int64_t most,
                                std::int64_t default_value) const {
  const std::int64_t value = default_value != 0 ? integer(key, default_value) : at(key).integer();
  if (value < 1 || value > most)
    unsupported(key, "it must be between 1 and " + std::to_string(most));
  return value;
}

std::string ConfigReader::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_->items())
    if (!read_.contains(name)) names.push_back(name);
  return name_list(names);
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
