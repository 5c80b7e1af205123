#include "megatron/models/hf/names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

/// Exports write the first name of each.
constexpr std::array<std::pair<std::string_view, Activation>, 12> kActivations{
    {{"silu", Activation::silu},
     {"swish", Activation::silu},
     {"gelu", Activation::gelu},
     {"gelu_python", Activation::gelu},
     {"gelu_new", Activation::gelu_tanh},
     {"gelu_pytorch_tanh", Activation::gelu_tanh},
     {"gelu_python_tanh", Activation::gelu_tanh},
     {"gelu_fast", Activation::gelu_tanh},
     {"gelu_accurate", Activation::gelu_tanh},
     {"relu", Activation::relu},
     {"relu2", Activation::squared_relu},
     {"quick_gelu", Activation::quick_gelu}}};

constexpr std::array<std::pair<std::string_view, RopeScaling>, 4> kScalings{
    {{"default", RopeScaling::none},
     {"linear", RopeScaling::linear},
     {"llama3", RopeScaling::llama3},
     {"yarn", RopeScaling::yarn}}};

template <class Table>
auto find_value(const Table& table, std::string_view name)
    -> std::optional<decltype(table[0].second)> {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.first == name; });
  if (found == table.end()) return std::nullopt;
  return found->second;
}

template <class Table, class Value>
std::string_view find_name(const Table& table, Value value) {
  return std::find_if(table.begin(), table.end(),
                      [&](const auto& row) { return row.second == value; })
      ->first;
}

}  // namespace

std::optional<Activation> find_activation(std::string_view name) {
  return find_value(kActivations, name);
}

std::string_view activation_name(Activation activation) {
  return find_name(kActivations, activation);
}

std::string activation_names() {
  std::string names;
  for (const auto& [name, activation] : kActivations)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

std::optional<RopeScaling> find_rope_scaling(std::string_view name) {
  return find_value(kScalings, name);
}

std::string_view rope_scaling_name(RopeScaling scaling) { return find_name(kScalings, scaling); }

}  // namespace megatron
