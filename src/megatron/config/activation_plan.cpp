#include "megatron/config/activation_plan.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "megatron/config/transformer_config.h"

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

std::optional<LayerActivationPolicy> parse_policy(std::string_view text) {
  LayerActivationPolicy policy;
  if (text == "none") return policy;
  for (const std::string_view word : split(text, '+')) {
    bool is_known = false;
    for (const auto& [name, part] : kParts) {
      if (word != name || policy.*part) continue;
      policy.*part = is_known = true;
    }
    if (!is_known) return std::nullopt;
  }
  return policy;
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1) return std::nullopt;
  return count;
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
  for (const std::string_view item : split(text, ',')) {
    const std::size_t star = item.find('*');
    const auto policy = parse_policy(item.substr(0, star));
    const auto count = star == std::string_view::npos ? std::optional<std::int64_t>(1)
                                                      : parse_count(item.substr(star + 1));
    if (!policy || !count || std::ssize(layers) + *count > kMaxLayers) return std::nullopt;
    layers.insert(layers.end(), static_cast<std::size_t>(*count), *policy);
  }
  return layers;
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
