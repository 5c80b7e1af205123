// A group under another name. Axes that have the same ranks share a transport, but each counts and
// reports its calls under its own name.
#pragma once

#include <memory>
#include <string>

#include "megatron/parallel/comm.h"

namespace megatron {

/// Returns a group that makes its calls on `comm` under `name`; `comm` itself if that is its name.
std::shared_ptr<Comm> with_name(const std::shared_ptr<Comm>& comm, const std::string& name);

}  // namespace megatron
