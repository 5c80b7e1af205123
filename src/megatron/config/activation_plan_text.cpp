// Reads and writes activation plans as texts.
#include <string_view>
#include <utility>

#include "megatron/base/words.h"
#include "megatron/config/activation_plan.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Returns the words of policies except none.
std::vector<std::string> policy_words() {
  std::vector<std::string> words = node_names(kRecomputed);
  words.insert(words.begin(), "full");
  words.emplace_back("offload");
  return words;
}

/// Returns a policy with what a word names; the same policy if it has that, or the word names
/// nothing.
LayerPolicy with(LayerPolicy policy, const std::string& word) {
  policy.full = policy.full || word == "full";
  policy.offload = policy.offload || word == "offload";
  policy.recomputed |= named_nodes({word}, kRecomputed);
  return policy;
}

/// Reads a policy. Returns what is wrong with the text, or nothing.
std::string read_policy(std::string_view text, LayerPolicy& policy) {
  if (text == "none") return {};
  for (const std::string_view part : split(text, '+')) {
    const std::string word(part);
    if (word == "none") return "'none' cannot be combined with other words";
    if (with({}, word) == LayerPolicy{})
      return "'" + word + "' is not one of none, " + joined_text(policy_words());
    if (with(policy, word) == policy) return "'" + word + "' is given twice";
    policy = with(policy, word);
  }
  if (policy.full && !policy.recomputed.empty())
    return "'" + std::string(text) + "' names parts of a layer that full recomputes anyway";
  return {};
}

/// Reads one item of a plan. Returns what is wrong with it, or nothing.
std::string read_item(std::string_view item, std::vector<LayerPolicy>& layers) {
  if (item.empty()) return "is empty";
  const std::size_t star = item.find('*');
  LayerPolicy policy;
  std::string mistake = read_policy(item.substr(0, star), policy);
  if (!mistake.empty()) return mistake;
  std::optional<std::int64_t> count = 1;
  if (star != std::string_view::npos) count = exact_number<std::int64_t>(item.substr(star + 1));
  if (!count || *count < 1)
    return "'" + std::string(item.substr(star + 1)) + "' is not a number of layers";
  if (*count > kMaxLayers - std::ssize(layers))
    return "makes more than " + std::to_string(kMaxLayers) + " layers";
  layers.insert(layers.end(), static_cast<std::size_t>(*count), policy);
  return {};
}

std::string read_plan(const std::string& text, std::vector<LayerPolicy>& layers) {
  std::int64_t number = 0;
  for (const std::string_view item : split(text, ',')) {
    ++number;
    const std::string mistake = read_item(item, layers);
    if (!mistake.empty())
      return "item " + std::to_string(number) + " of '" + text + "': " + mistake;
  }
  return {};
}

}  // namespace

std::string policy_text(const LayerPolicy& policy) {
  std::vector<std::string> words = policy_words();
  std::erase_if(words, [&](const std::string& word) { return with(policy, word) != policy; });
  return words.empty() ? "none" : joined_text(words, "+");
}

std::string activation_plan_text(const std::vector<LayerPolicy>& layers) {
  std::string text;
  for (std::size_t begin = 0; begin < layers.size();) {
    std::size_t end = begin + 1;
    while (end < layers.size() && layers[end] == layers[begin]) ++end;
    text += (text.empty() ? "" : ",") + policy_text(layers[begin]);
    if (end - begin > 1) text += "*" + std::to_string(end - begin);
    begin = end;
  }
  return text;
}

std::optional<std::vector<LayerPolicy>> parse_activation_plan(const std::string& text) {
  std::vector<LayerPolicy> layers;
  return read_plan(text, layers).empty() ? std::optional(std::move(layers)) : std::nullopt;
}

std::string activation_plan_mistake(const std::string& text) {
  std::vector<LayerPolicy> layers;
  return read_plan(text, layers);
}

}  // namespace megatron
