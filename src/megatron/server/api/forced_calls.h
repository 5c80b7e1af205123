// What makes a model write what the client demands: a call of a tool, or a text of a format, behind
// its reasoning.
#pragma once

#include "megatron/chat/output_format.h"
#include "megatron/config/sampling_params.h"
#include "megatron/server/api/chat_request.h"

namespace megatron {

struct ServedChat;

/// How the text of a request is written.
struct OutputPlan {
  OutputFormat format = {};
  ToolCallFormat forced = {};  ///< that of `format`, when a call is demanded
  /// Text at the end of the prompt that is a part of the output.
  std::string begin = {};
};

/// Returns the schema of the calls that the request demands: {"name", "arguments"}, and a list of
/// such objects where several calls are allowed.
OrderedJson call_schema(const ChatRequest& request);

/// Constrains the sampling to what the request demands, and its reasoning to its budget. May append
/// to the prompt. UserError when the model's format cannot be constrained so.
void plan_output(const ServedChat& chat, ChatRequest& request, OutputPlan& plan);

}  // namespace megatron
