// Makes a model write what the client demands: calls of tools, or a text of some form, behind its
// reasoning, and reasoning within its budget.
#pragma once

#include "megatron/chat/output_format.h"
#include "megatron/server/api/chat_request.h"

namespace megatron {

struct ServedChat;

/// Sets the constraint and the budget of a request whose prompt is rendered, and may append the tag
/// that begins reasoning to the prompt. Returns how its texts are written: if calls are demanded,
/// as `calls`, which is set to that.
OutputFormat plan_output(const ServedChat& chat, ChatRequest& request, ToolCallFormat& calls);

}  // namespace megatron
