// What models write, and what it is divided into. The texts of calls are those of SGLang's and
// vLLM's tests or like them; where SGLang's detectors can read a text, they find the same calls.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace megatron {

/// What a text is divided into. Calls are lines of NAME and ARGUMENTS.
struct Divided {
  std::string reasoning = {}, content = {}, calls = {};
  std::string ids = {};  ///< not compared
  bool operator==(const Divided& other) const {
    return reasoning == other.reasoning && content == other.content && calls == other.calls;
  }
};
inline std::ostream& operator<<(std::ostream& out, const Divided& divided) {
  return out << "\nreasoning: " << divided.reasoning << "\ncontent: " << divided.content
             << "\ncalls: " << divided.calls;
}

struct ModelOutput {
  const char *calls, *reasoning;  ///< names of the formats
  std::string text;
  Divided divided;
  const char* prompt = "";
};

inline const std::vector<ModelOutput> kModelOutputs = {
    // Calls in JSON.
    {"hermes",
     "qwen3",
     "<think>\nhm</think>Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, "
     "\"}\"]}}\n</tool_call>",
     {"\nhm", "Sure.", "f {\"a\": [1, \"}\"]}"}},
    {"hermes",
     "none",
     R"(Hi <tool_call>
{"name": "f", "arguments": {"a": 1, "b": "x"}}
</tool_call>
<tool_call>
{"name": "g", "arguments": {}}
</tool_call> Done.)",
     {"", "Hi Done.", "f {\"a\": 1, \"b\": \"x\"}\ng {}"}},
    {"hermes",
     "none",
     "<tool_call>{\"arguments\": {\"a\": -1.5e3}, \"name\": \"f\"}</tool_call>",
     {"", "", "f {\"a\": -1.5e3}"}},
    {"hermes",
     "none",
     R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)",
     {"", "", "f {\"a\": 1}"}},
    {"hermes", "none", "<tool_call>{\"name\": \"f\"}</tool_call>", {"", "", "f {}"}},
    {"hermes",
     "none",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, }</tool_call>",
     {"", "", "f {\"a\": 1}"}},  // a comma too much and a brace too few
    {"hermes",
     "none",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": \"\\d\\u00e9\\ud83d\\ude00\\ud83d\n\"}}"
     "</tool_call>",
     {"", "", "f {\"b\": \"\\\\d\\u00e9\\ud83d\\ude00\\\\ud83d\\u000a\"}"}},
    {"hermes",
     "none",
     "<tool_call>not json</tool_call>",
     {"", "<tool_call>not json</tool_call>", ""}},
    {"hermes",
     "none",
     R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
     {"", R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)", ""}},
    {"hermes",
     "none",
     R"(<tool_call>{"name": "f", "arguments": {"a": tru}}</tool_call>)",
     {"", R"(<tool_call>{"name": "f", "arguments": {"a": tru}}</tool_call>)", ""}},
    {"hermes",
     "none",
     R"(<tool_call>{"name": "f", "name": "g"}</tool_call>)",
     {"", R"(<tool_call>{"name": "f", "name": "g"}</tool_call>)", ""}},
    {"hermes",
     "none",
     R"(<tool_call>{"name": "f", "arguments": {"a": 1}, "parameters": {"a": 2}}</tool_call>)",
     {"", R"(, "parameters": {"a": 2}}</tool_call>)", R"(f {"a": 1})"}},
    {"hermes",
     "none",
     R"(<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>)",
     {"", R"(, "a": 2}}</tool_call>)", R"(f {"a": 1})"}},
    {"hermes",
     "none",
     R"(<tool_call>{"name": "f", "arguments": {"b": "cut)",
     {"", "", R"(f {"b": "cut)"}},
    {"llama3_json",
     "none",
     R"({"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}})",
     {"", "", "f {\"a\": 1}\ng {}"}},
    {"llama3_json",
     "none",
     R"({"name": "f", "parameters": {"a": 1}};  That is all.)",
     {"", ";  That is all.", "f {\"a\": 1}"}},
    {"llama3_json",
     "none",
     "Hello <|python_tag|>{\"type\": \"function\", \"name\": \"g\", \"parameters\": {}}",
     {"", "Hello", "g {}"}},
    {"llama3_json", "none", " {\"key\": 1}", {"", " {\"key\": 1}", ""}},
    {"llama3_json",
     "none",
     R"({"name": "unknown", "parameters": {}})",
     {"", R"({"name": "unknown", "parameters": {}})", ""}},
    {"llama4_json",
     "none",
     R"(<|python_start|>{"name": "f", "parameters": {"a": 1}}<|python_end|>)",
     {"", "", "f {\"a\": 1}"}},
    {"mistral",
     "mistral",
     R"([THINK]hm[/THINK]Text [TOOL_CALLS] [{"name": "f", "arguments": {"a": 1, "b": "x"}}, )"
     R"({"name": "g", "arguments": {}}])",
     {"hm", "Text", "f {\"a\": 1, \"b\": \"x\"}\ng {}"}},
    {"mistral",
     "none",
     "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
     {"", "", "f {\"a\": 1}\ng {}"}},
    {"mistral", "none", "[TOOL_CALLS]no call", {"", "[TOOL_CALLS]no call", ""}},
    {"cohere_command3",
     "cohere_command3",
     "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"f\", \"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", "
     "\"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
     {"hm", "", "f {\"a\": 1}\ng {}"}},
    {"cohere_command3",
     "cohere_command3",
     "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hi <b>.<|END_RESPONSE|>",
     {"hm", "Hi <b>.", ""}},
    {"nemotron_json",
     "none",
     R"(<TOOLCALL>[{"name": "f", "arguments": {"a": 1}}, ]</TOOLCALL>)",
     {"", "", "f {\"a\": 1}"}},
    {"jamba",
     "none",
     "<tool_calls>[\n    {\"name\": \"g\", \"arguments\": {}}\n]</tool_calls>",
     {"", "", "g {}"}},
    {"phi4_mini_json",
     "none",
     R"(functools[{"name": "f", "arguments": {"a": 1}}, oops])",
     {"", ", oops]", "f {\"a\": 1}"}},
    {"granite",
     "none",
     R"(<|tool_call|>[{"name": "f", "arguments": {"a": 1}}])",
     {"", "", "f {\"a\": 1}"}},
    // A name between tags, then JSON.
    {"deepseek_v3",
     "deepseek_r1",
     "<think>hm</think>A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
     "```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n"
     "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {"hm", "A", "f {\"a\": 1}\ng {}"}},
    {"deepseek_v31",
     "deepseek_v3",
     "A ＜<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     {"", "A ＜", "f {\"a\": 1}\ng {}"}},
    {"deepseek_v31",
     "none",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\" 1}<｜tool▁call▁end｜>",
     {"", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\" 1}<｜tool▁call▁end｜>",
      ""}},
    {"kimi_k2",
     "kimi_vl",
     "◁think▷hm◁/think▷A<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
     "<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     {"hm", "A", "f {\"a\": 1}\ng {}"}},
    // Each argument between tags.
    {"qwen3_coder",
     "none",
     "A<tool_call>\n<function=f>\n<parameter=a>\n12\n</parameter>\n<parameter=b>\nline 1\nline "
     "2\n</parameter>\n<parameter=c>\n{\"k\": [1, null]}\n</parameter>\n</function>\n</tool_call>\n"
     "<tool_call>\n<function=g>\n</function>\n</tool_call>",
     {"", "A", "f {\"a\": 12, \"b\": \"line 1\\nline 2\", \"c\": {\"k\": [1, null]}}\ng {}"}},
    {"qwen3_coder",
     "none",
     "<function=f><parameter=c>{'k': True}</parameter></function></tool_call> B",
     {"", "B", "f {\"c\": {\"k\": true}}"}},
    {"mimo",
     "none",
     "<tool_call><function=f><parameter=a>seven</parameter></function></tool_call>",
     {"", "", "f {\"a\": \"seven\"}"}},
    {"qwen3_coder",
     "none",
     "<tool_call><function=f><parameter=b>1</parameter><parameter=b>2</parameter></function>",
     {"", "<parameter=b>2</parameter></function>", "f {\"b\": \"1\"}"}},
    {"qwen3_coder",
     "none",
     "<tool_call><function=f><parameter=b>1</parameter><parameter=c>2",
     {"", "<parameter=c>2", "f {\"b\": \"1\""}},
    {"qwen3_coder",
     "none",
     "<tool_call><function=f><parameter=b>1</parameter></func",
     {"", "", "f {\"b\": \"1\"}"}},
    {"minimax_m2",
     "minimax_m2",
     "hm</think>\n\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n"
     "<parameter name=\"b\">x</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
     "</minimax:tool_call>",
     {"hm", "", "f {\"a\": 1, \"b\": \"x\"}\ng {}"}},
    {"seed_oss",
     "seed_oss",
     "<seed:think>hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n"
     "</function>\n</seed:tool_call>",
     {"hm", "", "f {\"a\": 1}"}},
    {"glm45",
     "glm45",
     "A<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n<arg_key>b</arg_key>\n"
     "<arg_value>x y</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
     {"", "A", "f {\"a\": 12, \"b\": \"x y\"}\ng {}"}},
    // Calls of Python.
    {"pythonic", "none", "[f(a=1, b=\"x\"), g()]", {"", "", "f {\"a\": 1, \"b\": \"x\"}\ng {}"}},
    {"pythonic",
     "none",
     R"([f(b='it\'s "q"', c={'k': [True, False, None, null], }, )])",
     {"", "", R"(f {"b": "it's \"q\"", "c": {"k": [true, false, null, null]}})"}},
    {"llama4_pythonic", "none", "<|python_start|>[f(a=1)]<|python_end|>", {"", "", "f {\"a\": 1}"}},
    {"llama4_pythonic",
     "none",
     R"([f(a=[1, 2, ], b="\x41\u00e9")] Done.)",
     {"", "Done.", R"(f {"a": [1, 2], "b": "\u0041\u00e9"})"}},
    {"pythonic", "none", R"([f(b="a, b) c]\n\\d")])", {"", "", R"(f {"b": "a, b) c]\n\\d"})"}},
    {"pythonic", "none", "[f(a=x)]", {"", "[f(a=x)]", ""}},
    {"pythonic", "none", "[f(1)]", {"", "[f(1)]", ""}},
    {"pythonic", "none", "[f(a=1, a=2)]", {"", ", a=2)]", "f {\"a\": 1}"}},
    {"pythonic", "none", "[1, 2] and {3}", {"", "[1, 2] and {3}", ""}},
    {"pythonic", "none", "[f(a=1), g(b=2)", {"", "", "f {\"a\": 1}\ng {\"b\": 2}"}},
    {"olmo3",
     "olmo3",
     "hm</think><function_calls>\nf(a=1, b='x')\ng()\n</function_calls>",
     {"hm", "", "f {\"a\": 1, \"b\": \"x\"}\ng {}"}},
    // OpenAI's channels.
    {"openai",
     "openai_gptoss",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     {"hm", "", "f {\"a\": 1}"}},
    {"openai",
     "openai_gptoss",
     "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f<|constrain|>json<|message|>{\"a\": 1}<|call|>commentary<|channel|>commentary "
     "to=functions.g<|constrain|>json<|message|>{}<|call|>",
     {"", "I will look.", "f {\"a\": 1}\ng {}"}},
    {"openai",
     "openai_gptoss",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi "
     "<b>.<|return|>",
     {"hm", "Hi <b>.", ""}},
    {"openai",
     "openai_gptoss",
     " to=functions.g<|channel|>commentary json<|message|><|call|>",
     {"", "", "g {}"},
     "<|start|>user<|message|>Hi<|end|><|start|>assistant"},
    {"openai", "openai_gptoss", "Plain < text.", {"", "Plain < text.", ""}},
    {"openai",
     "openai_gptoss",
     "lo.<|return|>",
     {"", "lo.", ""},
     "<|start|>assistant<|channel|>final<|message|>Hel"},
    {"openai",
     "openai_gptoss",
     "analysis<|message|>hm<|end|>",
     {"hm", "", ""},
     "<|start|>assistant<|channel|>"},
    {"openai",
     "openai_gptoss",
     "<|channel|>commentary to=functions.f<|message|>[1]<|call|>",
     {"", "<|channel|>commentary to=functions.f<|message|>[1]", ""}},
    {"openai",
     "openai_gptoss",
     "<|channel|>commentary to=functions.f<|message|>{\"a\": 1, \"b\": oops}<|call|>",
     {"", ", \"b\": oops}", "f {\"a\": 1}"}},
    {"openai",
     "openai_gptoss",
     "<|channel|>commentary to=browser.open<|message|>{\"id\": 1}<|call|>",
     {"", "<|channel|>commentary to=browser.open<|message|>{\"id\": 1}", ""}},
    {"openai",
     "none",
     "<|channel|>analysis<|message|>hm<|end|><|channel|>final<|message|>Hi",
     {"", "<|channel|>analysis<|message|>hmHi", ""}},
    // Reasoning that begins in the prompt.
    {"none", "qwen3", "hm</think>\n\nHi", {"hm", "Hi", ""}, "<|im_start|>assistant\n<think>\n"},
    {"none",
     "qwen3",
     "<think>hm</think>\n\nHi",
     {"hm", "Hi", ""},
     "<|im_start|>assistant\n<think>"},
    {"none", "deepseek_r1", "<think>hm</think>Hi", {"hm", "Hi", ""}, "<｜Assistant｜>"},
    {"none", "deepseek_r1", "Hi", {"", "Hi", ""}, "<think>\n\n</think>\n\n"},
    {"none", "qwen3", "\n<think>\nhm</think>Hi", {"\nhm", "Hi", ""}},
    {"none", "qwen3", " <b>Hi\n", {"", " <b>Hi\n", ""}},
};

}  // namespace megatron
