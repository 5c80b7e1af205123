#include "megatron/tokenizers/training/trained_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "megatron/base/json_text.h"

namespace megatron {
namespace {

struct Role {
  std::string_view name;
  std::array<std::string_view, 4> tokens;
};

constexpr std::array kRoles{
    Role{"bos_token", {"<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>"}},
    Role{"eos_token", {"<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "</s>"}},
    Role{"unk_token", {"<unk>", "[UNK]", "<|unk|>", ""}},
    Role{"pad_token", {"<pad>", "[PAD]", "<|pad|>", "<|padding|>"}},
    Role{"cls_token", {"[CLS]", "<cls>", "", ""}},
    Role{"sep_token", {"[SEP]", "<sep>", "", ""}},
    Role{"mask_token", {"[MASK]", "<mask>", "", ""}},
};

std::string quoted(const std::string& text) { return JsonText(text).dump(); }

/// Returns JSON as serde writes it: an indentation of two spaces, after `depth` levels.
std::string indented(const JsonText& value, int depth) {
  std::string text = value.dump(2);
  const std::string margin = "\n" + std::string(static_cast<std::size_t>(2 * depth), ' ');
  for (std::size_t at = text.find('\n'); at != std::string::npos;
       at = text.find('\n', at + margin.size()))
    text.replace(at, 1, margin);
  return text;
}

/// Appends a list whose items `append_item(i)` writes, at the given indentation.
template <class AppendItem>
void append_list(std::string& out, char open, char close, std::size_t size, int depth,
                 const AppendItem& append_item) {
  const std::string margin(static_cast<std::size_t>(2 * depth), ' ');
  out += open;
  for (std::size_t i = 0; i < size; ++i) {
    out += i == 0 ? "\n" : ",\n";
    out += margin + "  ";
    append_item(i);
  }
  if (size > 0) out += "\n" + margin;
  out += close;
}

void append_field(std::string& out, std::string_view name, const JsonText& value, int depth) {
  const std::string margin(static_cast<std::size_t>(2 * depth), ' ');
  out.append(margin).append("\"").append(name).append("\": ");
  out += indented(value, depth) + ",\n";
}

/// Returns the fields before "model".
std::string stages(const TokenizerTrainerOptions& options, const JsonText& added_tokens) {
  std::string out = "{\n";
  append_field(out, "version", "1.0", 1);
  append_field(out, "truncation", nullptr, 1);
  append_field(out, "padding", nullptr, 1);
  append_field(out, "added_tokens", added_tokens, 1);
  append_field(out, "normalizer", normalizer_component(options), 1);
  append_field(out, "pre_tokenizer", pre_tokenizer_component(options), 1);
  append_field(out, "post_processor", nullptr, 1);
  append_field(out, "decoder", decoder_component(options), 1);
  return out;
}

template <class IdOf>
JsonText added_tokens(const TokenizerTrainerOptions& options, const IdOf& id_of) {
  std::vector<std::pair<std::int64_t, std::string>> tokens;
  for (const std::string& token : *options.special_tokens) tokens.emplace_back(id_of(token), token);
  std::ranges::sort(tokens);
  const auto same = std::ranges::unique(tokens);
  tokens.erase(same.begin(), same.end());
  JsonText list = JsonText::array();
  for (const auto& [id, token] : tokens)
    list.push_back({{"id", id},
                    {"content", token},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  return list;
}

/// Returns a number as serde writes it: the shortest digits that give it back.
std::string number_text(double value) {
  char digits[40];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

void append_vocabulary(std::string& out, const std::vector<std::string>& tokens) {
  out += "    \"vocab\": ";
  append_list(out, '{', '}', tokens.size(), 2,
              [&](std::size_t id) { out += quoted(tokens[id]) + ": " + std::to_string(id); });
}

void append_bpe(std::string& out, const TrainedBpe& model) {
  out += "  \"model\": {\n";
  append_field(out, "type", "BPE", 2);
  for (const char* unset :
       {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
    append_field(out, unset, nullptr, 2);
  for (const char* off : {"fuse_unk", "byte_fallback", "ignore_merges"})
    append_field(out, off, false, 2);
  append_vocabulary(out, model.tokens);
  out += ",\n    \"merges\": ";
  append_list(out, '[', ']', model.merges.size(), 2, [&](std::size_t i) {
    const auto& [left, right] = model.merges[i];
    append_list(out, '[', ']', 2, 3,
                [&](std::size_t side) { out += quoted(model.tokens[side == 0 ? left : right]); });
  });
}

void append_wordpiece(std::string& out, const TokenizerTrainerOptions& options,
                      const TrainedBpe& model) {
  out += "  \"model\": {\n";
  append_field(out, "type", "WordPiece", 2);
  append_field(out, "unk_token", options.unk_token, 2);
  append_field(out, "continuing_subword_prefix", options.continuing_subword_prefix, 2);
  append_field(out, "max_input_chars_per_word", 100, 2);
  append_vocabulary(out, model.tokens);
}

}  // namespace

std::string tokenizer_json(const TokenizerTrainerOptions& options, const TrainedBpe& model) {
  const auto id_of = [&](const std::string& token) {
    return std::ranges::find(model.tokens, token) - model.tokens.begin();
  };
  std::string out = stages(options, added_tokens(options, id_of));
  if (options.model == TrainedModel::byte_bpe) {
    append_bpe(out, model);
  } else {
    append_wordpiece(out, options, model);
  }
  return out + "\n  }\n}";
}

std::string tokenizer_json(const TokenizerTrainerOptions& options, const TrainedUnigram& model) {
  const auto id_of = [&](const std::string& token) {
    return std::ranges::find(model.pieces, token, &std::pair<std::string, double>::first) -
           model.pieces.begin();
  };
  std::string out = stages(options, added_tokens(options, id_of));
  out += "  \"model\": {\n";
  append_field(out, "type", "Unigram", 2);
  append_field(out, "unk_id", model.unk_id, 2);
  out += "    \"vocab\": ";
  append_list(out, '[', ']', model.pieces.size(), 2, [&](std::size_t i) {
    append_list(out, '[', ']', 2, 3, [&](std::size_t part) {
      out += part == 0 ? quoted(model.pieces[i].first) : number_text(model.pieces[i].second);
    });
  });
  return out + ",\n    \"byte_fallback\": false\n  }\n}";
}

std::string tokenizer_config_json(const TokenizerTrainerOptions& options) {
  JsonText config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  std::vector<std::string> tokens = *options.special_tokens;
  if (!options.unk_token.empty()) tokens.push_back(options.unk_token);
  for (const Role& role : kRoles)
    for (const std::string_view usual : role.tokens)
      if (!usual.empty() && std::ranges::find(tokens, usual) != tokens.end()) {
        config[role.name] = usual;
        break;
      }
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = 1000000000000000000;
  return config.dump(2) + "\n";
}

std::string eos_token_of(std::span<const std::string> special_tokens) {
  for (const std::string_view usual : kRoles[1].tokens)
    if (std::ranges::find(special_tokens, usual) != special_tokens.end()) return std::string(usual);
  return "";
}

}  // namespace megatron
