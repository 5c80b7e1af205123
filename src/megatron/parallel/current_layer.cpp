#include "megatron/parallel/current_layer.h"

#include <utility>

namespace megatron {
namespace {

thread_local LayerName layer_of_thread;

}  // namespace

const LayerName& current_layer() { return layer_of_thread; }

LayerScope::LayerScope(LayerName layer)
    : earlier_(std::exchange(layer_of_thread, std::move(layer))) {}

LayerScope::~LayerScope() { layer_of_thread = std::move(earlier_); }

}  // namespace megatron
