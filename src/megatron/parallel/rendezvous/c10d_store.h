// The run's store as LibTorch's libraries see it.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "megatron/control/run_store.h"

namespace c10d {
class Store;
}

namespace megatron {

/// Returns the keys of `store` below `prefix` as a c10d store, through which Gloo and NCCL connect.
/// Its timeout is the timeout of the connection.
c10::intrusive_ptr<c10d::Store> make_c10d_store(const RunStore& store, const std::string& prefix);

}  // namespace megatron
