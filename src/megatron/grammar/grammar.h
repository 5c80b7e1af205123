// Constrains the texts that a model says: which tokens may follow, so that a text is always the
// beginning of one that the constraint allows, and ends only where it is one.
//
// What may follow inside a rule, such as that of JSON strings, is the same whoever calls it, so it
// is computed once. Only tokens in which the rule ends are followed through its callers, as in
// Dong et al., "XGrammar", 2024.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/config/sampling_params.h"
#include "megatron/grammar/text_matcher.h"
#include "megatron/grammar/token_trie.h"

namespace megatron {

/// Tokens that may follow.
struct TokenMask {
  std::vector<std::uint64_t> bits;  ///< by token id
  bool has_tokens = false;
  bool is_complete = false;  ///< the text may end
  /// Makes the logits of all other tokens −infinity.
  void apply(std::span<float> logits) const;
  bool allows(std::int64_t id) const {
    const auto bit = static_cast<std::size_t>(id);
    return id >= 0 && bit / 64 < bits.size() && (bits[bit / 64] >> bit % 64 & 1) != 0;
  }
};

/// A compiled constraint. Thread-safe.
class Grammar {
 public:
  using State = TextMatcher::SetId;

  /// UserError when the constraint is wrong, or no text of these tokens fits it.
  Grammar(const OutputConstraint& constraint, std::shared_ptr<const TokenTrie> tokens);

  State begin() const { return begin_; }
  /// Returns the state behind a token; TextMatcher::kNone if no text goes on so.
  State advance(State from, std::int64_t token);
  std::shared_ptr<const TokenMask> mask(State state);
  /// Returns whether a text, not its beginning, fits.
  bool accepts(std::string_view text);

  const TokenTrie& tokens() const { return *tokens_; }
  /// Returns whether it remembers so many states that a new one is to be compiled.
  bool is_large() const;

 private:
  /// What may follow inside a rule, and where the rule ends.
  struct Inside {
    std::vector<std::uint64_t> bits;
    std::vector<std::size_t> ends;  ///< nodes of the trie
  };
  /// Returns a reference that the next call may invalidate.
  const Inside& inside(const std::vector<Automaton::StateId>& states);
  /// Adds the tokens below a node of the trie, and the nodes at which a rule leaves to `ends`.
  void walk(State from, std::size_t node, std::vector<std::uint64_t>& bits,
            std::vector<std::size_t>* ends);
  void add_tokens(std::size_t node, std::vector<std::uint64_t>& bits) const;
  std::shared_ptr<const TokenMask> compute_mask(State state);

  std::shared_ptr<const TokenTrie> tokens_;
  mutable std::mutex mutex_;  ///< guards the members below
  TextMatcher matcher_;
  State begin_;
  std::map<State, Inside> insides_;
  std::map<State, std::shared_ptr<const TokenMask>> masks_;
  std::vector<State> path_;  ///< of walk(), by depth
};

/// The constraints of a tokenizer's texts, compiled. Thread-safe.
class GrammarCache {
 public:
  /// The tokenizer must outlive the cache.
  explicit GrammarCache(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Returns null without a constraint. UserError when it is wrong. Thread-safe: a server calls it
  /// before the engine does, so that a large one keeps nobody waiting.
  std::shared_ptr<Grammar> get(const OutputConstraint& constraint);

 private:
  const Tokenizer& tokenizer_;
  std::mutex mutex_;  ///< guards the members below
  std::shared_ptr<const TokenTrie> tokens_;
  using Key = std::pair<OutputConstraint::Kind, std::vector<std::string>>;
  std::map<Key, std::shared_ptr<Grammar>> grammars_;
};

}  // namespace megatron
