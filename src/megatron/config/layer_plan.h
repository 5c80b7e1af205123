// What each layer of a stack consists of, as a value: layers of equal kind have equal parameters,
// costs and code paths.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "megatron/config/cp_comm_type.h"

namespace megatron {

/// The block of a layer that mixes positions; none in a layer of a hybrid pattern that only has a
/// feed-forward block.
enum class MixerKind : std::uint8_t { none, attention };

/// The block of a layer that works on each position separately.
enum class FeedForwardKind : std::uint8_t { none, mlp, experts };

struct LayerKind {
  MixerKind mixer = MixerKind::attention;
  FeedForwardKind feed_forward = FeedForwardKind::mlp;
  /// Sliding window (left, right) of attention; −1 = unlimited, nullopt = no window.
  std::optional<std::array<std::int64_t, 2>> window = {};
  CpCommType cp_comm_type = CpCommType::p2p;

  bool has_experts() const { return feed_forward == FeedForwardKind::experts; }
  bool operator==(const LayerKind&) const = default;
};

}  // namespace megatron
