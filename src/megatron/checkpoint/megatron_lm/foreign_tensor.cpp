#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"

namespace megatron {
namespace {

constexpr std::string_view kLayers = "decoder.layers.", kOptimizer = "optimizer.state.",
                           kExperts = ".mlp.experts.experts.";

/// The states of optimizers by Megatron's names and ours.
const std::array<std::pair<std::string_view, std::string_view>, 5> kStates{{
    {"fp32_param.", kMainParameterPrefix},
    {"param.", kMainParameterPrefix},
    {"exp_avg_sq.", "exp_avg_sq."},
    {"exp_avg.", "exp_avg."},
    {"momentum_buffer.", "momentum_buffer."},
}};

/// Returns element `index` along the first axis, which is dropped.
ForeignTensor element(const ForeignTensor& stacked, std::int64_t index) {
  ForeignTensor one{.type = stacked.type,
                    .shape = Shape(stacked.shape.begin() + 1, stacked.shape.end())};
  for (const Piece& piece : stacked.pieces) {
    const std::int64_t first = piece.slice.global_offset.front(), count = piece.slice.shape.front();
    if (index < first || index >= first + count) continue;
    Piece& part = one.pieces.emplace_back(piece);
    for (Shape* shape : {&part.slice.global_offset, &part.slice.local_offset, &part.slice.shape})
      shape->erase(shape->begin());
    *part.offset += static_cast<std::uint64_t>((index - first) * num_elements(part.slice.shape)) *
                    element_size(one.type);
  }
  return one;
}

void add(std::string name, ForeignTensor tensor, bool is_state_of_optimizer, Manifest& manifest) {
  if (const auto place = name.find(kExperts); place != std::string::npos)
    name.replace(place, kExperts.size(), ".mlp.experts.");
  TensorKind kind = is_state_of_optimizer ? TensorKind::optimizer : TensorKind::weight;
  if (kind == TensorKind::weight && name.ends_with(".expert_bias")) kind = TensorKind::state;
  manifest.tensors[std::move(name)] = {.kind = kind,
                                       .type = tensor.type,
                                       .shape = std::move(tensor.shape),
                                       .pieces = std::move(tensor.pieces)};
}

}  // namespace

void add_torch_dist_tensors(const ForeignTensors& theirs, const std::string& source,
                            Manifest& manifest) {
  for (const auto& [full_name, tensor] : theirs) {
    std::string_view name = full_name;
    std::string prefix;
    const bool is_of_optimizer = name.starts_with("optimizer.");
    if (is_of_optimizer) {
      const auto state = std::ranges::find_if(kStates, [&](const auto& one) {
        return name.starts_with(kOptimizer) &&
               name.substr(kOptimizer.size()).starts_with(one.first);
      });
      if (state == kStates.end()) continue;
      prefix = state->second;
      name.remove_prefix(kOptimizer.size() + state->first.size());
    }
    const bool is_stacked = name.starts_with(kLayers) && name.size() > kLayers.size() &&
                            std::isdigit(static_cast<unsigned char>(name[kLayers.size()])) == 0;
    if (!is_stacked) {
      add(prefix + std::string(name), tensor, is_of_optimizer, manifest);
      continue;
    }
    if (tensor.shape.empty())
      throw UserError({source + ": tensor '" + full_name + "' has no axis of layers", "", ""});
    for (std::int64_t layer = 0; layer < tensor.shape.front(); ++layer)
      add(prefix + std::string(kLayers) + std::to_string(layer) + "." +
              std::string(name.substr(kLayers.size())),
          element(tensor, layer), is_of_optimizer, manifest);
  }
}

}  // namespace megatron
