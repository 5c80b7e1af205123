#include "megatron/tokenizers/chat/chat_files.h"

#include <nlohmann/json.hpp>
#include <string>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  if (reads_tokenizer_json(tokenizer.name()) || tokenizer.name() == "NullTokenizer") return;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string name = tokenizer.decode(std::vector{id}, SpecialTokens::keep);
    if (!name.empty()) names_.add(name, id);
  }
}

std::vector<std::int32_t> ChatEncoder::encode(std::string_view text,
                                              bool add_special_tokens) const {
  if (names_.empty())
    return add_special_tokens ? tokenizer_.encode(text) : tokenizer_.encode_fragment(text);
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    const auto [span, id] = names_.find(text, at);
    if (span.begin > at) {
      const auto part = tokenizer_.encode_fragment(text.substr(at, span.begin - at));
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (id >= 0) ids.push_back(id);
    at = span.end;
  }
  return ids;
}

namespace {

using Templates = std::map<std::string, ChatTemplateSource>;

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

/// Reads the field chat_template of a JSON file: a text, or a list of names and texts.
Templates templates_in(const fs::path& path) {
  const Json config = read_json(path);
  const std::string file = path.string();
  if (!config.is_object())
    throw UserError({file + " must be a JSON object", std::string(config.type_name()), ""});
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  const std::string source = file + ": chat_template";
  if (found->is_string()) return {{"default", {found->get<std::string>(), source}}};
  if (!found->is_array())
    throw UserError(
        {source + " must be a text or a list of templates", std::string(found->type_name()), ""});
  Templates templates;
  for (const Json& value : *found) {
    const JsonCursor entry(value, source);
    const std::string name = entry["name"].text();
    templates[name] = {entry["template"].text(), source + " '" + name + "'"};
  }
  return templates;
}

std::string names_of(const Templates& templates) {
  return joined_text(templates, ", ", &Templates::value_type::first);
}

/// Returns the only template of a file, or the one called default.
ChatTemplateSource template_in(const fs::path& file) {
  if (file.extension() != ".json") return {read_file(file), file.string()};
  const Templates templates = templates_in(file);
  const auto found = templates.find("default");
  if (found == templates.end())
    throw UserError({"--chat-template " + file.string() + " has no template called default", "",
                     "give a file with the field chat_template, or a Jinja file"});
  return found->second;
}

}  // namespace

Templates find_chat_templates(const fs::path& folder) {
  Templates templates;
  const auto add_file = [&](const std::string& name, const fs::path& path) {
    if (fs::is_regular_file(path)) templates[name] = {read_file(path), path.string()};
  };
  add_file("default", folder / "chat_template.jinja");
  const fs::path more = folder / "additional_chat_templates";
  if (fs::is_directory(more))
    for (const auto& entry : fs::directory_iterator(more))
      if (entry.path().extension() == ".jinja")
        add_file(entry.path().stem().string(), entry.path());
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    if (templates.empty() && fs::is_regular_file(folder / name))
      templates = templates_in(folder / name);
  return templates;
}

ChatTemplateSource find_chat_template(const ChatFiles& files, bool has_tools) {
  const auto& [folder, choice, metadata] = files;
  if (choice.empty() && !metadata.empty())
    return templates_in(metadata).at("default");  // chat_files() has seen it
  const Templates templates = folder.empty() ? Templates() : find_chat_templates(folder);
  if (!choice.empty()) {
    if (const auto found = templates.find(choice); found != templates.end()) return found->second;
    if (fs::is_regular_file(choice)) return template_in(choice);
    throw UserError({"--chat-template names neither a file nor a template of the model",
                     "'" + choice + "'",
                     templates.empty() ? "" : "the model has " + names_of(templates)});
  }
  for (const char* name : {"tool_use", "default"})
    if (const auto found = templates.find(name);
        found != templates.end() && (has_tools || found->first == "default"))
      return found->second;
  if (!templates.empty())
    throw UserError({"the model has several chat templates and none is called default",
                     names_of(templates), "choose one with --chat-template"});
  throw UserError(
      {"the model has no chat template", folder.string(), "give one with --chat-template"});
}

ChatTemplate open_chat_template(const ChatFiles& files, bool has_tools) {
  const ChatTemplateSource found = find_chat_template(files, has_tools);
  return {found.text, found.source};
}

std::vector<std::pair<std::string, chat::Value>> special_token_variables(
    const fs::path& folder, const Tokenizer* tokenizer) {
  std::map<std::string, std::string> tokens;
  bool has_files = false;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = folder / name;
    if (folder.empty() || !fs::is_regular_file(path)) continue;
    has_files = true;
    const Json config = read_json(path);
    for (const char* key : kSpecialTokens) {
      const auto found = JsonCursor(config, path.string()).find(key);
      if (!found || (*found)->is_null()) continue;
      tokens.emplace(key, (*found)->is_object() ? (*found)["content"].text() : found->text());
    }
  }
  if (!has_files && tokenizer != nullptr) {
    const auto add = [&](const char* key, std::int32_t id) {
      if (id >= 0) tokens.emplace(key, tokenizer->decode(std::vector{id}, SpecialTokens::keep));
    };
    add("bos_token", tokenizer->bos());
    add("eos_token", tokenizer->eod());
  }
  std::vector<std::pair<std::string, chat::Value>> variables;
  for (auto& [key, token] : tokens) variables.emplace_back(key, chat::Value::text(token));
  return variables;
}

}  // namespace megatron
