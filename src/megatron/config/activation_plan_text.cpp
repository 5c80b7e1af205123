// Reads and writes activation plans as texts.
#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

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

/// Adds what a word names to a policy. Returns what is wrong with the word, or nothing.
std::string read_word(std::string_view word, LayerPolicy& policy) {
  const auto& rows = layer_nodes();
  const auto* const row = std::ranges::find_if(rows, [&](const LayerNodeRow& row) {
    return row.name == word && (row.uses & kRecomputed) != 0;
  });
  bool is_new = false;
  if (word == "full") {
    is_new = !std::exchange(policy.full, true);
  } else if (word == "offload") {
    is_new = !std::exchange(policy.offload, true);
  } else if (row != rows.end()) {
    is_new = policy.recomputed.insert(row->node);
  } else if (word == "none") {
    return "'none' cannot be combined with other words";
  } else {
    std::string names = "none, full";
    for (const std::string& name : node_names(kRecomputed)) names += ", " + name;
    return "'" + std::string(word) + "' is not one of " + names + ", offload";
  }
  return is_new ? "" : "'" + std::string(word) + "' is given twice";
}

/// Reads a policy. Returns what is wrong with the text, or nothing.
std::string read_policy(std::string_view text, LayerPolicy& policy) {
  if (text == "none") return {};
  for (const std::string_view word : split(text, '+')) {
    std::string mistake = read_word(word, policy);
    if (!mistake.empty()) return mistake;
  }
  if (policy.full && !policy.recomputed.empty())
    return "'" + std::string(text) + "' names parts of a layer that full recomputes anyway";
  return {};
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1) return std::nullopt;
  return count;
}

/// Reads one item of a plan. Returns what is wrong with it, or nothing.
std::string read_item(std::string_view item, std::vector<LayerPolicy>& layers) {
  if (item.empty()) return "is empty";
  const std::size_t star = item.find('*');
  LayerPolicy policy;
  std::string mistake = read_policy(item.substr(0, star), policy);
  if (!mistake.empty()) return mistake;
  std::optional<std::int64_t> count = 1;
  if (star != std::string_view::npos) count = parse_count(item.substr(star + 1));
  if (!count) return "'" + std::string(item.substr(star + 1)) + "' is not a number of layers";
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
  std::string text;
  const auto add = [&](bool has, std::string_view word) {
    if (has) text += (text.empty() ? "" : "+") + std::string(word);
  };
  add(policy.full, "full");
  for (const LayerNodeRow& row : layer_nodes()) add(policy.recomputed.contains(row.node), row.name);
  add(policy.offload, "offload");
  return text.empty() ? "none" : text;
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
