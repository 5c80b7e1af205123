#include "megatron/tokenizers/hugging_face/decoder.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/hugging_face/normalizer.h"
#include "megatron/tokenizers/hugging_face/text_growth.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

using Tokens = std::vector<std::string>;

Tokens decode_byte_level(const Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) append_decoded_byte_level(bytes, token);
  auto replaced = replace_invalid_utf8(bytes);
  return {replaced ? std::move(*replaced) : std::move(bytes)};
}

Tokens fuse(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return {text};
}

/// Returns the byte of a token <0xHH>; nullopt for other tokens.
std::optional<char> byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

Tokens decode_byte_fallback(const Tokens& tokens) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (replace_invalid_utf8(bytes)) {
      out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
    } else {
      out.push_back(bytes);
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += *byte;
    } else {
      flush();
      out.push_back(token);
    }
  }
  flush();
  return out;
}

/// Returns the field `key`, which must be one UTF-8 character.
std::string character_of(const JsonCursor& component, const std::string& key) {
  std::string character = component[key].text();
  std::size_t size = 0;
  if (!character.empty()) next_code_point(character, size);
  if (character.empty() || size != character.size())
    throw UserError({component[key].name() + " must be one character", "'" + character + "'", ""});
  return character;
}

Decoder make_strip(const JsonCursor& component) {
  const std::int64_t start = component["start"].integer(), stop = component["stop"].integer();
  if (start < 0 || stop < 0)
    throw UserError(
        {component.place() + ": fields 'start' and 'stop' must not be negative", "", ""});
  return [content = character_of(component, "content"), start, stop](Tokens tokens) {
    for (std::string& token : tokens) {
      for (std::int64_t i = 0; i < start && token.starts_with(content); ++i)
        token.erase(0, content.size());
      for (std::int64_t i = 0; i < stop && token.ends_with(content); ++i)
        token.resize(token.size() - content.size());
    }
    return tokens;
  };
}

Decoder make_metaspace(const JsonCursor& component) {
  bool prepended = bool_or(component, "add_prefix_space", true);
  if (component->contains("prepend_scheme"))
    prepended = component["prepend_scheme"].text() != "never";
  return [replacement = character_of(component, "replacement"), prepended](Tokens tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string text;
      for (std::size_t at = 0; at < tokens[i].size();) {
        const std::size_t begin = at;
        next_code_point(tokens[i], at);
        const std::string character = tokens[i].substr(begin, at - begin);
        if (character != replacement) {
          text += character;
        } else if (i > 0 || !prepended) {
          text += ' ';
        }
      }
      tokens[i] = std::move(text);
    }
    return tokens;
  };
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Removes the spaces that English writing does not have, as WordPiece's cleanup does.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

Decoder make_word_piece(const JsonCursor& component) {
  return [prefix = component["prefix"].text(),
          cleanup = bool_or(component, "cleanup", true)](Tokens tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0 && token.starts_with(prefix)) {
        token.erase(0, prefix.size());
      } else if (i > 0) {
        token.insert(0, " ");
      }
      if (cleanup) clean_up(token);
    }
    return tokens;
  };
}

Decoder make_bpe(const JsonCursor& component) {
  return [suffix = component["suffix"].text()](Tokens tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    return tokens;
  };
}

Decoder make_ctc(const JsonCursor& component) {
  return [pad = component["pad_token"].text(), delimiter = component["word_delimiter_token"].text(),
          cleanup = bool_or(component, "cleanup", true)](Tokens tokens) {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad, "");
      if (!cleanup) continue;
      clean_up(token);
      replace_all(token, delimiter, " ");
    }
    std::erase(tokens, "");
    return tokens;
  };
}

Decoder make_replace(const JsonCursor& component) {
  std::shared_ptr<Normalizer> replace = make_normalizer(component);
  return [replace](Tokens tokens) {
    for (std::string& token : tokens) token = replace->apply(std::move(token));
    return tokens;
  };
}

std::size_t num_bytes(const Tokens& tokens) {
  std::size_t size = 0;
  for (const std::string& token : tokens) size += token.size();
  return size;
}

Decoder make_sequence(const JsonCursor& component) {
  std::vector<Decoder> parts;
  for (const JsonCursor& part : component["decoders"].elements())
    if (Decoder made = make_decoder(part)) parts.push_back(std::move(made));
  return [parts](Tokens tokens) {
    const std::size_t original = num_bytes(tokens);
    for (const auto& part : parts) {
      tokens = part(std::move(tokens));
      check_growth(original, num_bytes(tokens));
    }
    return tokens;
  };
}

}  // namespace

Decoder make_decoder(const JsonCursor& component) {
  if (component->is_null()) return nullptr;
  const std::string type = component_type(component);
  if (type == "ByteLevel") return decode_byte_level;
  if (type == "Fuse") return fuse;
  if (type == "ByteFallback") return decode_byte_fallback;
  if (type == "Strip") return make_strip(component);
  if (type == "Metaspace") return make_metaspace(component);
  if (type == "Replace") return make_replace(component);
  if (type == "WordPiece") return make_word_piece(component);
  if (type == "BPEDecoder") return make_bpe(component);
  if (type == "CTC") return make_ctc(component);
  if (type == "Sequence") return make_sequence(component);
  unsupported_component(type, component.place());
}

}  // namespace megatron::hugging_face
