#include "megatron/config/activation_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "megatron/config/memory_config.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

constexpr std::array<std::pair<std::string_view, bool LayerActivationPolicy::*>, 6> kParts{
    {{"full", &LayerActivationPolicy::full},
     {"layernorm", &LayerActivationPolicy::layernorm},
     {"mlp", &LayerActivationPolicy::mlp},
     {"moe", &LayerActivationPolicy::moe},
     {"shared_experts", &LayerActivationPolicy::shared_experts},
     {"offload", &LayerActivationPolicy::offload}}};

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Reads a policy. Returns what is wrong with the text, or nothing.
std::string read_policy(std::string_view text, LayerActivationPolicy& policy) {
  if (text == "none") return {};
  for (const std::string_view word : split(text, '+')) {
    const auto* const part = std::ranges::find(kParts, word, &decltype(kParts)::value_type::first);
    if (part == kParts.end()) {
      if (word == "none") return "'none' cannot be combined with other words";
      std::string names = "none";
      for (const auto& [name, unused] : kParts) names += ", " + std::string(name);
      return "'" + std::string(word) + "' is not one of " + names;
    }
    if (std::exchange(policy.*part->second, true))
      return "'" + std::string(word) + "' is given twice";
  }
  if (policy.full && (policy.layernorm || policy.mlp || policy.moe || policy.shared_experts))
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
std::string read_item(std::string_view item, std::vector<LayerActivationPolicy>& layers) {
  if (item.empty()) return "is empty";
  const std::size_t star = item.find('*');
  LayerActivationPolicy policy;
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

std::string read_plan(const std::string& text, std::vector<LayerActivationPolicy>& layers) {
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

std::string policy_text(const LayerActivationPolicy& policy) {
  std::string text;
  for (const auto& [name, part] : kParts) {
    if (policy.*part) text += (text.empty() ? "" : "+") + std::string(name);
  }
  return text.empty() ? "none" : text;
}

std::string activation_plan_text(const std::vector<LayerActivationPolicy>& layers) {
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

std::optional<std::vector<LayerActivationPolicy>> parse_activation_plan(const std::string& text) {
  std::vector<LayerActivationPolicy> layers;
  return read_plan(text, layers).empty() ? std::optional(std::move(layers)) : std::nullopt;
}

bool is_planned(const MemoryConfig& memory) {
  return memory.has_budget() || !memory.activation_plan.empty();
}

bool offloads_layers(const MemoryConfig& memory) {
  const OffloadConfig& config = memory.offload;
  return config.cpu_offloading || config.cpu_offloading_num_layers > 0 ||
         config.fine_grained_activation_offloading ||
         memory.activation_plan.find("offload") != std::string::npos;
}

std::string activation_plan_mistake(const std::string& text) {
  std::vector<LayerActivationPolicy> layers;
  return read_plan(text, layers);
}

RecomputePlan recompute_plan(const std::vector<LayerActivationPolicy>& layers) {
  RecomputePlan plan;
  for (const LayerActivationPolicy& policy : layers) {
    // Each layer is a group of its own.
    const std::int64_t group = policy.full ? std::ssize(plan.layers) + 1 : 0;
    plan.layers.push_back({.group = group,
                           .layernorm = policy.layernorm,
                           .mlp = policy.mlp,
                           .moe = policy.moe,
                           .shared_experts = policy.shared_experts});
  }
  return plan;
}

OffloadPlan offload_plan(const std::vector<LayerActivationPolicy>& layers,
                         std::int64_t min_elements) {
  OffloadPlan plan{.layers = {}, .min_elements = min_elements};
  for (const LayerActivationPolicy& policy : layers)
    plan.layers.push_back({.whole = policy.offload});
  return plan;
}

}  // namespace megatron
