// Makes a model write what the client demands: calls of tools, or a text of some form, behind its
// reasoning, and reasoning within its budget.
#pragma once

#include "megatron/chat/output_format.h"
#include "megatron/server/api/chat_request.h"

namespace megatron {

struct ServedChat;

/// How the texts of a request are written. It is not copied, as `format` refers to its members.
struct OutputPlan {
  OutputFormat format = {};
  ToolCallFormat calls = {};       ///< that of `format`, if calls are demanded
  ReasoningFormat reasoning = {};  ///< likewise, if the text behind it is constrained: two tags
};

/// Sets the constraint and the budget of a request whose prompt is rendered, and may append the tag
/// that begins reasoning to the prompt.
void plan_output(const ServedChat& chat, ChatRequest& request, OutputPlan& plan);

}  // namespace megatron
