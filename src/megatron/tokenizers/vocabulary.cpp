#include "megatron/tokenizers/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
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

}  // namespace

Vocabulary::Vocabulary(const nlohmann::json& object, const std::string& source) {
  if (!object.is_object())
    throw UserError(
        {source + " must be an object of tokens and ids", std::string(object.type_name()), ""});
  if (object.empty())
    throw UserError({source + " has no tokens", "", "check that the file is whole"});
  slots_.resize(std::bit_ceil(object.size() * 2 + 2));
  for (const auto& [token, value] : object.items()) {
    const std::int32_t id = checked_id(value, token, source);
    if (contains(id))
      throw UserError({source + ": id " + std::to_string(id) + " is given twice",
                       "to \"" + std::string(this->token(id)) + "\" and \"" + token + "\"",
                       "every token needs its own id"});
    insert(token, id);
  }
}

std::optional<Vocabulary> Vocabulary::of_pairs(
    std::span<const std::pair<std::string_view, std::int32_t>> tokens) {
  Vocabulary vocabulary;
  vocabulary.slots_.resize(std::bit_ceil(tokens.size() * 2 + 2));
  vocabulary.token_of_id_.reserve(tokens.size());
  std::vector<std::uint32_t> hashes;
  hashes.reserve(tokens.size());
  for (const auto& [token, id] : tokens) hashes.push_back(hash_bytes(token));
  constexpr std::size_t kAhead = 8;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i + kAhead < tokens.size())
      __builtin_prefetch(&vocabulary.slots_[hashes[i + kAhead] & (vocabulary.slots_.size() - 1)]);
    const auto& [token, id] = tokens[i];
    if (vocabulary.contains(id) || !vocabulary.insert(token, hashes[i], id)) return std::nullopt;
  }
  return tokens.empty() ? std::nullopt : std::optional(std::move(vocabulary));
}

Vocabulary Vocabulary::numbered(std::span<const std::string> tokens, const std::string& source) {
  if (tokens.empty())
    throw UserError({source + " has no tokens", "", "check that the file is whole"});
  if (static_cast<std::int64_t>(tokens.size()) > kMaxTokenId)
    throw UserError({source + " has more than " + std::to_string(kMaxTokenId) + " tokens", "", ""});
  Vocabulary vocabulary;
  vocabulary.slots_.resize(std::bit_ceil(tokens.size() * 2 + 2));
  for (std::size_t id = 0; id < tokens.size(); ++id)
    vocabulary.insert(tokens[id], static_cast<std::int32_t>(id));
  return vocabulary;
}

bool Vocabulary::is_token(std::int32_t id, std::string_view token) const {
  const TokenRange& range = token_of_id_[static_cast<std::size_t>(id)];
  return range.size == token.size() &&
         std::memcmp(arena_.data() + range.offset, token.data(), token.size()) == 0;
}

bool Vocabulary::insert(std::string_view token, std::uint32_t hash, std::int32_t id) {
  std::size_t at = hash & (slots_.size() - 1);
  while (slots_[at].id >= 0 && (slots_[at].hash != hash || !is_token(slots_[at].id, token)))
    at = (at + 1) & (slots_.size() - 1);
  const bool is_new = slots_[at].id < 0;
  slots_[at] = {hash, id};
  if (id >= id_limit()) token_of_id_.resize(static_cast<std::size_t>(id) + 1);
  token_of_id_[static_cast<std::size_t>(id)] = {arena_.size(),
                                                static_cast<std::uint32_t>(token.size())};
  arena_.append(token);
  ++size_;
  return is_new;
}

std::int32_t Vocabulary::find(std::string_view token) const {
  return slots_.empty() ? -1 : find(token, hash_bytes(token));
}

void Vocabulary::find_all(std::span<const std::string_view> tokens,
                          std::span<std::int32_t> ids) const {
  if (slots_.empty()) {
    std::ranges::fill(ids, -1);
    return;
  }
  constexpr std::size_t kBatch = 16;
  std::array<std::uint32_t, kBatch> hashes{};
  for (std::size_t first = 0; first < tokens.size(); first += kBatch) {
    const std::size_t count = std::min(kBatch, tokens.size() - first);
    const auto slot = [&](std::size_t i) -> const Slot& {
      return slots_[hashes[i] & (slots_.size() - 1)];
    };
    for (std::size_t i = 0; i < count; ++i) {
      hashes[i] = hash_bytes(tokens[first + i]);
      __builtin_prefetch(&slot(i));
    }
    for (std::size_t i = 0; i < count; ++i)
      if (const std::int32_t id = slot(i).id; id >= 0)
        __builtin_prefetch(&token_of_id_[static_cast<std::size_t>(id)]);
    for (std::size_t i = 0; i < count; ++i) ids[first + i] = find(tokens[first + i], hashes[i]);
  }
}

std::int32_t Vocabulary::find(std::string_view token, std::uint32_t hash) const {
  for (std::size_t at = hash & (slots_.size() - 1); slots_[at].id >= 0;
       at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].hash == hash && is_token(slots_[at].id, token)) return slots_[at].id;
  }
  return -1;
}

std::string_view Vocabulary::token(std::int32_t id) const {
  if (!contains(id)) return {};
  const TokenRange& range = token_of_id_[static_cast<std::size_t>(id)];
  return std::string_view(arena_).substr(range.offset, range.size);
}

}  // namespace megatron
