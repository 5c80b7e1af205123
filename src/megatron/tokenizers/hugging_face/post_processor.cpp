#include "megatron/tokenizers/hugging_face/post_processor.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/component.h"

namespace megatron::hugging_face {

PostProcessor::PostProcessor(const Json& component, std::int32_t id_limit, const std::string& where)
    : id_limit_(id_limit) {
  if (!component.is_null()) add(component, where);
}

std::vector<std::int32_t> PostProcessor::apply(std::vector<std::int32_t> ids) const {
  ids.insert(ids.begin(), before_.begin(), before_.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

void PostProcessor::add(const Json& component, const std::string& where) {
  const std::string type = component_type(component, where);
  if (type == "ByteLevel") return;  // it changes only the places of tokens
  if (type == "TemplateProcessing") return add_template(component, where);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return add_sep_and_cls(component, where);
  if (type != "Sequence") unsupported_component(type, where);
  std::size_t index = 0;
  for (const Json& part : array_at(component, "processors", where))
    add(part, where + ".processors[" + std::to_string(index++) + "]");
}

std::int32_t PostProcessor::checked(const Json& id, const std::string& where) const {
  if (!id.is_number_integer() || !(id >= 0 && id < id_limit_))
    throw UserError({where + ": ids must be integers from 0 to " + std::to_string(id_limit_ - 1),
                     id.dump(), ""});
  return id.get<std::int32_t>();
}

void PostProcessor::add_template(const Json& component, const std::string& where) {
  const Json& special_tokens = json_at(component, "special_tokens", where);
  std::vector<std::int32_t> before, after;
  bool seen_text = false;
  for (const Json& part : array_at(component, "single", where)) {
    if (part.is_object() && part.contains("Sequence")) {
      if (seen_text || json_string(part.at("Sequence"), "id", where + ".single") != "A")
        throw UserError({where + ".single must hold the sequence A exactly once",
                         component.at("single").dump(), ""});
      seen_text = true;
      continue;
    }
    const std::string name =
        json_string(json_at(part, "SpecialToken", where + ".single"), "id", where + ".single");
    const std::string source = where + ".special_tokens";
    for (const Json& id :
         array_at(json_at(special_tokens, name, source), "ids", source + "." + name))
      (seen_text ? after : before).push_back(checked(id, source + "." + name));
  }
  if (!seen_text)
    throw UserError({where + ".single must hold the sequence A exactly once",
                     component.at("single").dump(), ""});
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
}

void PostProcessor::add_sep_and_cls(const Json& component, const std::string& where) {
  const auto id_of = [&](const std::string& key) {
    const Json& pair = array_at(component, key, where);
    if (pair.size() != 2)
      throw UserError({where + ": field '" + key + "' must be [token, id]", pair.dump(), ""});
    return checked(pair.at(1), where + "." + key);
  };
  before_.insert(before_.begin(), id_of("cls"));
  after_.push_back(id_of("sep"));
}

}  // namespace megatron::hugging_face
