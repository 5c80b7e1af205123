#include "megatron/tokenizers/hugging_face/tokenizer_json.h"

#include <simdjson.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/huge_pages.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/hugging_face/json_number.h"

namespace megatron::hugging_face {
namespace {

using simdjson::SUCCESS;
using simdjson::ondemand::json_type;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

/// A file as simdjson wants it: with bytes behind its end. Its last page has some, most often.
class PaddedFile {
 public:
  /// Throws a UserError when the file cannot be read.
  explicit PaddedFile(const std::filesystem::path& path) : file_(path) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t used = file_.size() % page;
    if (used == 0 || used + simdjson::SIMDJSON_PADDING > page)
      copy_ = simdjson::padded_string(text(), file_.size());
  }
  simdjson::padded_string_view view() const {
    if (copy_.size() > 0) return copy_;
    return simdjson::padded_string_view(text(), file_.size(),
                                        file_.size() + simdjson::SIMDJSON_PADDING);
  }

 private:
  const char* text() const { return reinterpret_cast<const char*>(file_.data()); }

  MappedFile file_;
  simdjson::padded_string copy_;
};

/// Uninitialized memory.
class UnsetBytes {
 public:
  explicit UnsetBytes(std::size_t size)
      : data_(static_cast<std::uint8_t*>(allocate_huge_pages(size))) {}
  std::uint8_t* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::uint8_t* block) const noexcept { free_huge_pages(block); }
  };
  std::unique_ptr<std::uint8_t, Free> data_;
};

struct Document {
  explicit Document(const std::filesystem::path& path)
      : file(path), texts(file.view().size() + simdjson::SIMDJSON_PADDING) {}
  PaddedFile file;
  simdjson::ondemand::parser parser;
  UnsetBytes texts;  ///< of the lists, one after the other, without quotes and escapes
};

/// What the file holds, with the lists as they are.
struct Parts {
  explicit Parts(Document& document) : parser(document.parser), end(document.texts.data()) {}

  bool read_text(simdjson::ondemand::raw_json_string quoted, std::string_view& text) {
    return parser.unescape(quoted, end).get(text) == SUCCESS;
  }

  const simdjson::ondemand::parser& parser;
  std::uint8_t* end;  ///< of the texts
  std::string rest;   ///< JSON of all other fields
  HugePageVector<std::pair<std::string_view, std::int32_t>> vocabulary;
  HugePageVector<std::string_view> pieces;  ///< of Unigram
  std::vector<double> scores;
  Bpe::MergeViews merges;
  bool has_vocabulary = false, has_merges = false;
};

bool append_raw(std::string& out, value field) {
  json_type type{};
  std::string_view raw;
  if (field.type().get(type) != SUCCESS) return false;
  if (type == json_type::object || type == json_type::array) {
    if (type == json_type::object) {
      object members;
      if (field.get_object().get(members) != SUCCESS || members.raw_json().get(raw) != SUCCESS)
        return false;
    } else {
      simdjson::ondemand::array items;
      if (field.get_array().get(items) != SUCCESS || items.raw_json().get(raw) != SUCCESS)
        return false;
    }
  } else {
    raw = field.raw_json_token();
  }
  out += raw;
  return true;
}

bool read_pieces(value list, Parts& parts) {
  simdjson::ondemand::array entries;
  if (list.get_array().get(entries) != SUCCESS) return false;
  for (auto entry : entries) {
    simdjson::ondemand::array sides;
    if (entry.get_array().get(sides) != SUCCESS) return false;
    std::size_t count = 0;
    for (auto side : sides) {
      simdjson::ondemand::raw_json_string quoted;
      std::string_view text;
      double score = 0;
      if (count == 0) {
        if (side.get_raw_json_string().get(quoted) != SUCCESS || !parts.read_text(quoted, text))
          return false;
        parts.pieces.push_back(text);
      } else {
        value number;
        if (count > 1 || side.get(number) != SUCCESS) return false;
        const std::string_view digits = number.raw_json_token();
        if (number.get_double().get(score) != SUCCESS) return false;  // it is no number
        parts.scores.push_back(read_json_number(digits));
      }
      ++count;
    }
    if (count != 2) return false;
  }
  return true;
}

bool read_vocabulary(value list, Parts& parts) {
  json_type type{};
  if (list.type().get(type) != SUCCESS) return false;
  if (type == json_type::array) return read_pieces(list, parts);
  object tokens;
  if (list.get_object().get(tokens) != SUCCESS) return false;
  for (auto field : tokens) {
    simdjson::ondemand::raw_json_string quoted;
    std::string_view token;
    std::int64_t id = -1;
    if (field.key().get(quoted) != SUCCESS || !parts.read_text(quoted, token) ||
        field.value().get_int64().get(id) != SUCCESS || id < 0 || id > kMaxTokenId)
      return false;
    parts.vocabulary.emplace_back(token, static_cast<std::int32_t>(id));
  }
  return true;
}

bool read_merge(value entry, Parts& parts) {
  json_type type{};
  if (entry.type().get(type) != SUCCESS) return false;
  if (type == json_type::string) {
    std::string_view text;
    simdjson::ondemand::raw_json_string quoted;
    if (entry.get_raw_json_string().get(quoted) != SUCCESS || !parts.read_text(quoted, text))
      return false;
    if (text.starts_with("#version")) return true;
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      return false;
    parts.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return true;
  }
  simdjson::ondemand::array sides;
  if (type != json_type::array || entry.get_array().get(sides) != SUCCESS) return false;
  std::array<std::string_view, 2> texts;
  std::size_t count = 0;
  for (auto side : sides) {
    simdjson::ondemand::raw_json_string quoted;
    if (count == 2 || side.get_raw_json_string().get(quoted) != SUCCESS ||
        !parts.read_text(quoted, texts[count]))
      return false;
    ++count;
  }
  if (count == 2) parts.merges.emplace_back(texts[0], texts[1]);
  return count == 2;
}

bool read_merges(value list, Parts& parts) {
  simdjson::ondemand::array entries;
  if (list.get_array().get(entries) != SUCCESS) return false;
  for (auto entry : entries) {
    value item;
    if (entry.get(item) != SUCCESS || !read_merge(item, parts)) return false;
  }
  return true;
}

bool read_fields(object members, Parts& parts, bool is_model) {
  parts.rest += '{';
  bool is_first = true;
  for (auto field : members) {
    value content;
    simdjson::ondemand::raw_json_string quoted;
    if (field.key().get(quoted) != SUCCESS) return false;
    const char* const raw = quoted.raw();
    const std::string_view key(raw, std::strcspn(raw, "\"\\"));
    if (raw[key.size()] != '"') return false;
    if (field.value().get(content) != SUCCESS) return false;
    if (is_model && (key == "vocab" || key == "merges")) {
      bool& has = key == "vocab" ? parts.has_vocabulary : parts.has_merges;
      if (has || !(key == "vocab" ? read_vocabulary(content, parts) : read_merges(content, parts)))
        return false;
      has = true;
      continue;
    }
    parts.rest.append(is_first ? "\"" : ",\"").append(key).append("\":");
    is_first = false;
    object inner;
    if (!is_model && key == "model") {
      if (content.get_object().get(inner) != SUCCESS || !read_fields(inner, parts, true))
        return false;
    } else if (!append_raw(parts.rest, content)) {
      return false;
    }
  }
  parts.rest += '}';
  return true;
}

/// Returns whether the lists are those of the model's type. Without a type, they are BPE's.
bool has_lists_of(const Json& model, const Parts& parts) {
  const Json type = model.contains("type") ? model.at("type") : Json("BPE");
  const bool has_scores = !parts.pieces.empty();
  if (type == "BPE") return parts.has_merges && !has_scores;
  if (parts.has_merges) return false;
  if (type == "Unigram") return has_scores;
  return (type == "WordPiece" || type == "WordLevel") && !has_scores;
}

/// Returns nullopt for mistakes, which the reader of the whole file explains.
std::optional<Vocabulary> make_vocabulary(const Parts& parts) {
  if (parts.pieces.empty()) return Vocabulary::of_pairs(parts.vocabulary);
  try {
    return Vocabulary::numbered(parts.pieces, "");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::optional<TokenizerJson> read_quickly(const std::filesystem::path& path) {
  std::shared_ptr<Document> document;
  try {
    document = std::make_shared<Document>(path);
  } catch (const UserError&) {  // the reader of the whole file says why
    return std::nullopt;
  }
  simdjson::ondemand::document content;
  object root;
  Parts parts(*document);
  // More than nearly all files need. Memory that is not used is not taken.
  parts.vocabulary.reserve(document->file.view().size() / 24);
  parts.merges.reserve(document->file.view().size() / 16);
  if (document->parser.iterate(document->file.view()).get(content) != SUCCESS ||
      content.get_object().get(root) != SUCCESS || !read_fields(root, parts, false) ||
      !parts.has_vocabulary)
    return std::nullopt;
  TokenizerJson result;
  try {
    result.root = std::make_shared<const Json>(parse_json(parts.rest, path.string()));
  } catch (const UserError&) {  // the reader of the whole file names the place
    return std::nullopt;
  }
  if (!result.root->is_object() || !has_lists_of(result.root->at("model"), parts))
    return std::nullopt;
  auto vocabulary = make_vocabulary(parts);
  if (!vocabulary) return std::nullopt;
  result.lists.emplace(ModelLists{.vocabulary = std::move(*vocabulary),
                                  .merges = std::move(parts.merges),
                                  .scores = std::move(parts.scores),
                                  .owner = document});
  return result;
}

}  // namespace

TokenizerJson read_tokenizer_json(const std::filesystem::path& path) {
  if (auto result = read_quickly(path)) return std::move(*result);
  return {std::make_shared<const Json>(read_json(path))};
}

}  // namespace megatron::hugging_face
