// The tokenizer over HTTP: /tokenize and /detokenize in vLLM's form, and /tokenizer_info, which
// lm-eval asks for.
#pragma once

#include <vector>

#include "megatron/server/api/api_route.h"

namespace megatron {

struct ServedModel;

/// Returns the routes. The model must outlive them. `chat_template` is its source; "": none.
std::vector<ApiRoute> tokenize_routes(const ServedModel& model,
                                      const std::string& chat_template = "");

}  // namespace megatron
