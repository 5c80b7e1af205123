#include "megatron/planner/sequence_cost.h"

namespace megatron {
namespace {

constexpr double kOperationsPerByte = 1000;
/// What a ring sends for a channel of a key or value: two bytes in forward, two in backward, and
/// four for its gradient.
constexpr double kBytesPerChannel = 8;

}  // namespace

SequenceCost sequence_cost(const ModelDimensions& dimensions) {
  const double channels = 2.0 * static_cast<double>(dimensions.query_groups) *
                          static_cast<double>(dimensions.kv_channels) *
                          static_cast<double>(dimensions.num_layers);
  return {.per_token = num_floating_point_operations(dimensions, 1.0, 0.0),
          .per_squared_token = num_floating_point_operations(dimensions, 0.0, 1.0),
          .per_sent_token = channels * kBytesPerChannel * kOperationsPerByte};
}

}  // namespace megatron
