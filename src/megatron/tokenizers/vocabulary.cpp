#include "megatron/tokenizers/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::int32_t checked_id(const nlohmann::json& value, const std::string& token,
                        const std::string& source) {
  const std::string what = source + ": the id of token \"" + token + "\"";
  if (!value.is_number_integer()) throw UserError({what + " must be an integer", value.dump(), ""});
  if (!(value >= 0 && value <= kMaxTokenId))
    throw UserError({what + " must be from 0 to " + std::to_string(kMaxTokenId), value.dump(), ""});
  return value.get<std::int32_t>();
}

/// Returns the size of a table of which half to three quarters stay free.
std::size_t num_slots(std::size_t num_tokens) { return std::bit_ceil(num_tokens * 2); }

}  // namespace

Vocabulary::Vocabulary(const nlohmann::json& object, const std::string& source) {
  if (!object.is_object())
    throw UserError(
        {source + " must be an object of tokens and ids", std::string(object.type_name()), ""});
  if (object.empty())
    throw UserError({source + " has no tokens", "", "check that the file is whole"});
  slots_.resize(num_slots(object.size()));
  for (const auto& [token, value] : object.items()) {
    const std::int32_t id = checked_id(value, token, source);
    if (contains(id))
      throw UserError({source + ": id " + std::to_string(id) + " is given twice",
                       "to \"" + std::string(this->token(id)) + "\" and \"" + token + "\"",
                       "every token needs its own id"});
    insert(token, id);
  }
}

template <class TokenAt, class Add>
bool Vocabulary::fill(std::size_t count, const TokenAt& token_at, const Add& add) {
  slots_.resize(num_slots(count));
  token_of_id_.reserve(count);
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < count; ++i) num_bytes += token_at(i).first.size();
  arena_.reserve(num_bytes);
  constexpr std::size_t kAhead = 8;
  std::array<TextKey, kAhead> keys;  // of the next tokens
  for (std::size_t i = 0; i < count + kAhead; ++i) {
    TextKey& key = keys[i % kAhead];
    if (i >= kAhead) {
      const auto& [token, id] = token_at(i - kAhead);
      if (!add(token, key, id)) return false;
    }
    if (i >= count) continue;
    key = TextKey::of(token_at(i).first);
    __builtin_prefetch(&slots_[first_slot(key)], 1);
  }
  return true;
}

std::optional<Vocabulary> Vocabulary::of_pairs(
    std::span<const std::pair<std::string_view, std::int32_t>> tokens) {
  Vocabulary vocabulary;
  const auto token_at = [&](std::size_t i) { return tokens[i]; };
  const bool is_unique = vocabulary.fill(
      tokens.size(), token_at, [&](std::string_view token, const TextKey& key, std::int32_t id) {
        return !vocabulary.contains(id) && vocabulary.insert(token, key, id);
      });
  return tokens.empty() || !is_unique ? std::nullopt : std::optional(std::move(vocabulary));
}

Vocabulary Vocabulary::numbered(std::span<const std::string_view> tokens,
                                const std::string& source) {
  if (tokens.empty())
    throw UserError({source + " has no tokens", "", "check that the file is whole"});
  if (static_cast<std::int64_t>(tokens.size()) > kMaxTokenId)
    throw UserError({source + " has more than " + std::to_string(kMaxTokenId) + " tokens", "", ""});
  Vocabulary vocabulary;
  const auto token_at = [&](std::size_t i) {
    return std::pair(tokens[i], static_cast<std::int32_t>(i));
  };
  vocabulary.fill(tokens.size(), token_at,
                  [&](std::string_view token, const TextKey& key, std::int32_t id) {
                    vocabulary.insert(token, key, id);
                    return true;
                  });
  return vocabulary;
}

bool Vocabulary::is_token(std::int32_t id, std::string_view token) const {
  const TokenRange& range = token_of_id_[static_cast<std::size_t>(id)];
  return range.size == token.size() &&
         same_bytes(arena_.data() + range.offset, token.data(), token.size());
}

bool Vocabulary::insert(std::string_view token, const TextKey& key, std::int32_t id) {
  std::size_t at = first_slot(key);
  while (slots_[at].id >= 0 && !holds(slots_[at], key, token)) at = (at + 1) & (slots_.size() - 1);
  const bool is_new = slots_[at].id < 0;
  slots_[at] = {key.bits, key.size, id};
  if (id >= id_limit()) token_of_id_.resize(static_cast<std::size_t>(id) + 1);
  token_of_id_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(arena_.size()),
                                                static_cast<std::uint32_t>(token.size())};
  arena_.append(token);
  ++size_;
  return is_new;
}

std::int32_t Vocabulary::find(std::string_view token) const {
  return slots_.empty() ? -1 : find(token, TextKey::of(token));
}

void Vocabulary::find_all(std::span<const std::string_view> tokens,
                          std::span<std::int32_t> ids) const {
  if (slots_.empty()) {
    std::ranges::fill(ids, -1);
    return;
  }
  constexpr std::size_t kBatch = 32;
  std::array<TextKey, kBatch> keys;
  for (std::size_t first = 0; first < tokens.size(); first += kBatch) {
    const std::size_t count = std::min(kBatch, tokens.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      keys[i] = TextKey::of(tokens[first + i]);
      __builtin_prefetch(&slots_[first_slot(keys[i])]);
    }
    for (const bool wants_text : {false, true}) {
      for (std::size_t i = 0; i < count; ++i) {
        if (keys[i].is_text()) continue;
        const std::int32_t id = slots_[first_slot(keys[i])].id;
        if (id < 0) continue;
        const TokenRange& range = token_of_id_[static_cast<std::size_t>(id)];
        __builtin_prefetch(wants_text && range.size != kAbsent
                               ? static_cast<const void*>(arena_.data() + range.offset)
                               : &range);
      }
    }
    for (std::size_t i = 0; i < count; ++i) ids[first + i] = find(tokens[first + i], keys[i]);
  }
}

std::int32_t Vocabulary::find(std::string_view token, const TextKey& key) const {
  for (std::size_t at = first_slot(key); slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1))
    if (holds(slots_[at], key, token)) return slots_[at].id;
  return -1;
}

std::string_view Vocabulary::token(std::int32_t id) const {
  if (!contains(id)) return {};
  const TokenRange& range = token_of_id_[static_cast<std::size_t>(id)];
  return std::string_view(arena_).substr(range.offset, range.size);
}

}  // namespace megatron
