#include "megatron/chat/output_format.h"

#include <algorithm>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

// A format stands before those whose sign its templates have too.
constexpr ToolCallFormat kCallFormats[] = {
    {.names = {"openai"},
     .sign = "<|channel|>",
     .other_sign = "<|start|>",
     .body = CallBody::channels},
    {.names = {"kimi_k2"},
     .body = CallBody::named,
     .begin = "<|tool_calls_section_begin|>",
     .end = "<|tool_calls_section_end|>",
     .call_begin = "<|tool_call_begin|>",
     .name_end = "<|tool_call_argument_begin|>",
     .call_end = "<|tool_call_end|>",
     .names_are_ids = true},
    {.names = {"deepseek_v3"},
     .other_sign = "```json",
     .body = CallBody::named,
     .begin = "<｜tool▁calls▁begin｜>",
     .end = "<｜tool▁calls▁end｜>",
     .call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .name_end = "```json",
     .call_end = "```<｜tool▁call▁end｜>"},
    {.names = {"deepseek_v31"},
     .body = CallBody::named,
     .begin = "<｜tool▁calls▁begin｜>",
     .end = "<｜tool▁calls▁end｜>",
     .call_begin = "<｜tool▁call▁begin｜>",
     .name_end = "<｜tool▁sep｜>",
     .call_end = "<｜tool▁call▁end｜>"},
    {.names = {"minimax_m2"},
     .body = CallBody::parameters,
     .begin = "<minimax:tool_call>",
     .end = "</minimax:tool_call>",
     .call_begin = "<invoke name=",
     .name_end = ">",
     .call_end = "</invoke>",
     .key_begin = "<parameter name=",
     .key_end = ">",
     .value_end = "</parameter>"},
    {.names = {"seed_oss"},
     .body = CallBody::parameters,
     .begin = "<seed:tool_call>",
     .end = "</seed:tool_call>",
     .call_begin = "<function=",
     .name_end = ">",
     .call_end = "</function>",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>"},
    {.names = {"glm45", "glm47"},
     .sign = "<arg_key>",
     .body = CallBody::parameters,
     .begin = "<tool_call>",
     .call_end = "</tool_call>",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>"},
    {.names = {"qwen3_coder", "qwen3_xml", "mimo"},
     .sign = "<function=",
     .body = CallBody::parameters,
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .call_begin = "<function=",
     .name_end = ">",
     .call_end = "</function>",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>",
     .other_begin = "<function="},
    {.names = {"mistral"}, .begin = "[TOOL_CALLS]", .name_end = "[ARGS]", .id_length = 9},
    {.names = {"cohere_command3", "cohere"},
     .begin = "<|START_ACTION|>",
     .end = "<|END_ACTION|>",
     .ignored = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
    {.names = {"nemotron_json"}, .begin = "<TOOLCALL>", .end = "</TOOLCALL>"},
    {.names = {"jamba"}, .begin = "<tool_calls>", .end = "</tool_calls>"},
    {.names = {"phi4_mini_json"}, .sign = "functools[", .begin = "functools"},
    {.names = {"olmo3"},
     .body = CallBody::python,
     .begin = "<function_calls>",
     .end = "</function_calls>"},
    {.names = {"hermes", "granite4", "longcat"}, .begin = "<tool_call>", .end = "</tool_call>"},
    {.names = {"granite"}, .begin = "<|tool_call|>"},
    {.names = {"llama4_pythonic", "pythonic"},
     .sign = "[func_name1(",
     .body = CallBody::python,
     .begin = "<|python_start|>",
     .end = "<|python_end|>",
     .begins_bare = true},
    {.names = {"llama4_json"},
     .begin = "<|python_start|>",
     .end = "<|python_end|>",
     .begins_bare = true},
    {.names = {"llama3_json"},
     .sign = "<|start_header_id|>ipython",
     .begin = "<|python_tag|>",
     .begins_bare = true},
};

constexpr ReasoningFormat kReasoningFormats[] = {
    {.names = {"qwen3", "deepseek_v3", "glm45", "kimi_k2", "granite4", "exaone4"},
     .begin = "<think>",
     .end = "</think>"},
    {.names = {"deepseek_r1", "minimax_m2", "olmo3", "step3", "nemotron_v3", "glm47"},
     .begin = "<think>",
     .end = "</think>",
     .begins_inside = true},
    {.names = {"openai_gptoss"},
     .begin = "<|channel|>analysis<|message|>",
     .end = "<|end|>",
     .is_channel = true},
    {.names = {"mistral"}, .begin = "[THINK]", .end = "[/THINK]"},
    {.names = {"seed_oss"}, .begin = "<seed:think>", .end = "</seed:think>"},
    {.names = {"cohere_command3"}, .begin = "<|START_THINKING|>", .end = "<|END_THINKING|>"},
    {.names = {"kimi_vl"}, .begin = "◁think▷", .end = "◁/think▷"},
};

template <class Formats>
auto find_named(const Formats& formats, const std::string& name, const char* flag) {
  std::vector<std::string_view> known = {"auto", "none"};
  for (const auto& format : formats)
    for (const std::string_view known_name : format.names) {
      if (known_name.empty()) continue;
      if (known_name == name) return &format;
      known.push_back(known_name);
    }
  std::ranges::sort(known);
  throw UserError({std::string(flag) + " does not know '" + name + "'", "",
                   "use one of " + joined_text(known)});
}

}  // namespace

OutputFormat recognize_output_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  OutputFormat format;
  for (const ToolCallFormat& calls : kCallFormats)
    if (format.calls == nullptr && has(calls.sign.empty() ? calls.begin : calls.sign) &&
        has(calls.other_sign))
      format.calls = &calls;
  const bool has_channels = format.calls != nullptr && format.calls->body == CallBody::channels;
  for (const ReasoningFormat& reasoning : kReasoningFormats)
    if (format.reasoning == nullptr &&
        (has_channels ? reasoning.is_channel : !reasoning.is_channel && has(reasoning.end)))
      format.reasoning = &reasoning;
  return format;
}

OutputFormat find_output_format(const std::string& tool_call_parser,
                                const std::string& reasoning_parser,
                                std::string_view chat_template) {
  OutputFormat format = recognize_output_format(chat_template);
  const bool is_auto = tool_call_parser.empty() || tool_call_parser == "auto",
             reasons_auto = reasoning_parser.empty() || reasoning_parser == "auto";
  if (!is_auto)
    format.calls = tool_call_parser == "none"
                       ? nullptr
                       : find_named(kCallFormats, tool_call_parser, "--tool-call-parser");
  if (!reasons_auto)
    format.reasoning = reasoning_parser == "none"
                           ? nullptr
                           : find_named(kReasoningFormats, reasoning_parser, "--reasoning-parser");
  return format;
}

}  // namespace megatron
