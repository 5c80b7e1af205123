#include "megatron/grammar/grammar.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/grammar/json_schema.h"
#include "megatron/grammar/regex_syntax.h"

namespace megatron {
namespace {

constexpr std::size_t kMostMasks = 1024, kMostSets = 50'000, kMostGrammars = 64;

TextMatcher matcher_of(const OutputConstraint& constraint, const Automaton::Bytes& bytes) {
  Automaton automaton;
  std::int32_t rule = 0;
  const std::string object = R"({"type": "object"})";
  switch (constraint.kind) {
    case OutputConstraint::Kind::json_schema:
      rule = add_json_schema(automaton, constraint.texts.at(0));
      break;
    case OutputConstraint::Kind::json_object:
      rule = add_json_schema(automaton, object);
      break;
    default: {
      rule = automaton.add_rule();
      const auto [begin, end] = automaton.rule(rule);
      for (const std::string& text : constraint.texts)
        automaton.add_skip(constraint.kind == OutputConstraint::Kind::regex
                               ? add_regex(automaton, begin, text)
                               : automaton.add_literal(begin, text),
                           end);
    }
  }
  return {std::move(automaton), rule, bytes};
}

}  // namespace

void TokenMask::apply(std::span<float> logits) const {
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
    const std::uint64_t word = begin / 64 < bits.size() ? bits[begin / 64] : 0;
    const std::size_t count = std::min<std::size_t>(64, logits.size() - begin);
    if (word == ~std::uint64_t{0}) continue;
    for (std::size_t i = 0; i < count; ++i)
      if ((word >> i & 1) == 0) logits[begin + i] = kImpossible;
  }
}

Grammar::Grammar(const OutputConstraint& constraint, std::shared_ptr<const TokenTrie> tokens)
    : tokens_(std::move(tokens)),
      matcher_(matcher_of(constraint, tokens_->single_bytes())),
      begin_(matcher_.begin()) {
  if (begin_ == TextMatcher::kNone)
    throw UserError({"the constraint of the output", "no text fits it", "allow a text"});
  if (!matcher_.set(begin_).is_live)
    throw UserError({"the constraint of the output", "the tokenizer cannot write a text that fits",
                     "allow texts of bytes that are tokens"});
}

bool Grammar::is_large() const {
  const std::lock_guard lock(mutex_);
  return matcher_.num_sets() > kMostSets;
}

bool Grammar::accepts(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const State state = matcher_.step(begin_, text);
  return state != TextMatcher::kNone && matcher_.set(state).is_complete;
}

Grammar::State Grammar::advance(State from, std::int64_t token) {
  const std::lock_guard lock(mutex_);
  const std::string_view text = tokens_->text(token);
  return text.empty() ? TextMatcher::kNone : matcher_.step(from, text);
}

std::shared_ptr<const TokenMask> Grammar::mask(State state) {
  const std::lock_guard lock(mutex_);
  if (masks_.size() >= kMostMasks && !masks_.contains(state)) masks_.clear();
  std::shared_ptr<const TokenMask>& mask = masks_[state];
  if (!mask) mask = compute_mask(state);
  return mask;
}

void Grammar::add_tokens(std::size_t node, std::vector<std::uint64_t>& bits) const {
  for (const std::int32_t id : tokens_->tokens(node)) {
    const auto bit = static_cast<std::size_t>(id);
    bits[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
}

void Grammar::walk(State from, std::size_t node, std::vector<std::uint64_t>& bits,
                   std::vector<std::size_t>* ends) {
  const std::span<const TokenTrie::Node> nodes = tokens_->nodes();
  const auto depth = static_cast<std::size_t>(nodes[node].depth),
             end = static_cast<std::size_t>(nodes[node].end);
  path_.assign(1, from);
  for (std::size_t i = node + 1; i < end;) {
    path_.resize(static_cast<std::size_t>(nodes[i].depth) - depth);
    const State next = matcher_.step(path_.back(), nodes[i].byte);
    if (next == TextMatcher::kNone) {
      i = static_cast<std::size_t>(nodes[i].end);
      continue;
    }
    path_.push_back(next);
    const TextMatcher::Set& set = matcher_.set(next);
    if (set.is_live) add_tokens(i, bits);
    if (set.leaves && ends != nullptr) ends->push_back(i);
    ++i;
  }
}

const Grammar::Inside& Grammar::inside(const std::vector<Automaton::StateId>& states) {
  const State local = matcher_.with_unknown_caller(states);
  if (insides_.size() >= kMostMasks && !insides_.contains(local)) insides_.clear();
  const auto [place, is_new] = insides_.try_emplace(local);
  Inside& own = place->second;
  if (is_new) {
    own.bits.resize((tokens_->vocab_size() + 63) / 64);
    walk(local, 0, own.bits, &own.ends);
  }
  return own;
}

std::shared_ptr<const TokenMask> Grammar::compute_mask(State state) {
  TokenMask mask{.bits = std::vector<std::uint64_t>((tokens_->vocab_size() + 63) / 64),
                 .is_complete = matcher_.set(state).is_complete};
  const std::vector<TextMatcher::Place>& places = matcher_.set(state).places;
  for (std::size_t i = 0; i < places.size();) {
    const std::int32_t stack = places[i].stack;
    std::vector<Automaton::StateId> states;
    for (; i < places.size() && places[i].stack == stack; ++i) states.push_back(places[i].state);
    const Inside& own = inside(states);
    if (matcher_.is_live_stack(stack))
      for (std::size_t k = 0; k < mask.bits.size(); ++k) mask.bits[k] |= own.bits[k];
    if (own.ends.empty()) continue;
    const State behind =
        stack == TextMatcher::kWhole ? TextMatcher::kNone : matcher_.returned(stack);
    if (stack != TextMatcher::kWhole && behind == TextMatcher::kNone) continue;
    const bool is_live = behind == TextMatcher::kNone || matcher_.set(behind).is_live;
    for (const std::size_t node : own.ends) {
      if (is_live) add_tokens(node, mask.bits);
      if (behind != TextMatcher::kNone) walk(behind, node, mask.bits, nullptr);
    }
  }
  mask.has_tokens = std::ranges::any_of(mask.bits, [](std::uint64_t word) { return word != 0; });
  MEGATRON_CHECK(mask.has_tokens || mask.is_complete, "no token may follow an incomplete text");
  return std::make_shared<const TokenMask>(std::move(mask));
}

std::shared_ptr<Grammar> GrammarCache::get(const OutputConstraint& constraint) {
  if (constraint.kind == OutputConstraint::Kind::none) return nullptr;
  const Key key{constraint.kind, constraint.texts};
  {
    const std::lock_guard lock(mutex_);
    if (!tokens_) tokens_ = std::make_shared<const TokenTrie>(tokenizer_);
    std::erase_if(grammars_, [](const auto& entry) { return entry.second->is_large(); });
    if (const auto found = grammars_.find(key); found != grammars_.end()) return found->second;
  }
  // Others need not wait meanwhile.
  auto grammar = std::make_shared<Grammar>(constraint, tokens_);
  const std::lock_guard lock(mutex_);
  if (grammars_.size() >= kMostGrammars) grammars_.clear();
  return grammars_[key] = std::move(grammar);
}

}  // namespace megatron
