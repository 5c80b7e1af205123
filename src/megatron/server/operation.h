// The routes of operation: what load balancers, monitors and clients ask about the server itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatron/inference/request_server.h"
#include "megatron/server/router.h"

namespace megatron {

/// Adds the chat page at /, /openapi.json, /health and /ping (503 unless the model serves),
/// /version and /metrics. `load` returns how busy the engine is; threads of the server call it, at
/// any time.
void add_operation_routes(HttpRouter& router, const std::string& version,
                          std::function<EngineLoad()> load);

/// Adds /v1/models, which lists the model under each of its names, and /v1/models/NAME.
void add_model_routes(HttpRouter& router, const std::vector<std::string>& names,
                      std::int64_t max_model_len);

}  // namespace megatron
