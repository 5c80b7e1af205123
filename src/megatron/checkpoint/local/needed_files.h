// The shard files of a checkpoint that a rank reads.
#pragma once

#include <set>
#include <string>

#include "megatron/checkpoint/manifest.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/params/param_store.h"

namespace megatron {

/// Returns the files with weights that `store` keeps, and with main weights and state that
/// `optimizer` keeps. `optimizer` may be null.
std::set<std::string> needed_files(const Manifest& manifest, const ParamStore& store,
                                   Optimizer* optimizer);

}  // namespace megatron
