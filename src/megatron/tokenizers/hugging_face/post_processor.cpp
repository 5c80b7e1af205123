#include "megatron/tokenizers/hugging_face/post_processor.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/component.h"

namespace megatron::hugging_face {

PostProcessor::PostProcessor(const JsonCursor& component, std::int32_t id_limit)
    : id_limit_(id_limit) {
  if (!component->is_null()) add(component);
}

std::vector<std::int32_t> PostProcessor::apply(std::vector<std::int32_t> ids) const {
  ids.insert(ids.begin(), before_.begin(), before_.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

void PostProcessor::add(const JsonCursor& component) {
  const std::string type = component_type(component);
  if (type == "ByteLevel") return;  // it changes only the places of tokens
  if (type == "TemplateProcessing") return add_template(component);
  if (type == "BertProcessing" || type == "RobertaProcessing") return add_sep_and_cls(component);
  if (type != "Sequence") unsupported_component(type, component.place());
  for (const JsonCursor& part : component["processors"].elements()) add(part);
}

std::int32_t PostProcessor::checked(const Json& id, const std::string& where) const {
  if (!id.is_number_integer() || !(id >= 0 && id < id_limit_))
    throw UserError({where + ": ids must be integers from 0 to " + std::to_string(id_limit_ - 1),
                     id.dump(), ""});
  return id.get<std::int32_t>();
}

void PostProcessor::add_template(const JsonCursor& component) {
  const JsonCursor special_tokens = component["special_tokens"], single = component["single"];
  std::vector<std::int32_t> before, after;
  bool seen_text = false;
  for (const JsonCursor& part : single.elements()) {
    if (const auto sequence = part.find("Sequence")) {
      if (seen_text || (*sequence)["id"].text() != "A")
        throw UserError(
            {single.place() + " must hold the sequence A exactly once", single->dump(), ""});
      seen_text = true;
      continue;
    }
    const JsonCursor token = special_tokens[part["SpecialToken"]["id"].text()];
    for (const Json& id : token["ids"].array())
      (seen_text ? after : before).push_back(checked(id, token.place()));
  }
  if (!seen_text)
    throw UserError(
        {single.place() + " must hold the sequence A exactly once", single->dump(), ""});
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
}

void PostProcessor::add_sep_and_cls(const JsonCursor& component) {
  const auto id_of = [&](const std::string& key) {
    const JsonCursor pair = component[key];
    if (pair.array().size() != 2)
      throw UserError({pair.name() + " must be [token, id]", pair->dump(), ""});
    return checked(pair->at(1), pair.place());
  };
  before_.insert(before_.begin(), id_of("cls"));
  after_.push_back(id_of("sep"));
}

}  // namespace megatron::hugging_face
