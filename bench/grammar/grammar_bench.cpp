// Times the compilation of JSON schemas and the masks of random texts.
//   grammar_bench TOKENIZER     a file or folder, as of --tokenizer-model; none: 128,000 random
//   tokens
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/config/tokenizer_config.h"
#include "megatron/grammar/grammar.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::string> random_tokens() {
  std::mt19937 random(1);
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  constexpr std::string_view kBytes = "eeetaoinshrdlucmfwypbgvkqjxz  01.,\"{}[]:";
  while (texts.size() < 128'000) {
    std::string& text = texts.emplace_back();
    for (std::uint32_t i = 2 + random() % 7; i-- > 0;) text += kBytes[random() % kBytes.size()];
  }
  return texts;
}

/// Says random texts. Returns the seconds of the masks of a token.
double seconds_of_masks(Grammar& grammar, std::uint32_t seed) {
  std::mt19937 random(seed);
  double seconds = 0;
  constexpr int kTokens = 4000;
  Grammar::State state = grammar.begin();
  for (int i = 0; i < kTokens; ++i) {
    std::shared_ptr<const TokenMask> mask;
    seconds += seconds_of([&] { mask = grammar.mask(state); });
    if (!mask->has_tokens) {
      state = grammar.begin();
      continue;
    }
    auto id = static_cast<std::int64_t>(random() % grammar.tokens().vocab_size());
    while (!mask->allows(id))
      id = (id + 1) % static_cast<std::int64_t>(grammar.tokens().vocab_size());
    seconds += seconds_of([&] { state = grammar.advance(state, id); });
  }
  return seconds / kTokens;
}

void bench(const std::vector<std::string>& args) {
  std::shared_ptr<const TokenTrie> tokens;
  std::unique_ptr<Tokenizer> tokenizer;
  if (!args.empty()) tokenizer = make_tokenizer({.tokenizer_model = args.front()});
  std::printf("trie of tokens: %.1f ms\n",
              1e3 * seconds_of([&] {
                tokens = tokenizer ? std::make_shared<const TokenTrie>(*tokenizer)
                                   : std::make_shared<const TokenTrie>(random_tokens());
              }));
  using enum OutputConstraint::Kind;
  for (const auto& [name, constraint] : std::vector<std::pair<const char*, OutputConstraint>>{
           {"any JSON object", {json_object, {}}},
           {"person",
            {json_schema, {R"({"type": "object", "properties": {"name": {"type": "string"},
              "age": {"type": "integer", "minimum": 0, "maximum": 150},
              "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
              "address": {"type": "object", "properties": {"street": {"type": "string"},
              "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["street"]}},
              "required": ["name", "age", "address"]})"}}},
           {"string of 10 to 200",
            {json_schema, {R"({"type": "string", "minLength": 10, "maxLength": 200})"}}},
           {"regex", {regex, {R"(\d{4}-\d\d-\d\d [A-Za-z ]+(, [A-Za-z ]+)*)"}}}}) {
    std::unique_ptr<Grammar> grammar;
    const double compile_s =
        seconds_of([&, &what = constraint] { grammar = std::make_unique<Grammar>(what, tokens); });
    const double first_s = seconds_of_masks(*grammar, 1), later_s = seconds_of_masks(*grammar, 2);
    std::printf("%s: compiled in %.1f ms, %.1f us a token at first, %.1f us later\n", name,
                1e3 * compile_s, 1e6 * first_s, 1e6 * later_s);
  }
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  try {
    megatron::bench({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
