// The description of the server's routes, for clients and tools, at /openapi.json.
#pragma once

#include <string>

namespace megatron {

/// Returns the description in the form of OpenAPI 3.1. The path "/a/{name}" is the route "/a/*".
std::string openapi_json();

}  // namespace megatron
