#include "megatron/chat/output_format.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string_view calls_of(std::string_view text) {
  const OutputFormat format = recognize_output_format(text);
  return format.calls == nullptr ? "" : format.calls->names[0];
}

TEST(OutputFormat, IsRecognizedByTheTemplate) {
  EXPECT_EQ(calls_of("<tool_call>\\n{\"name\": "), "hermes");
  EXPECT_EQ(calls_of("<tool_call>\\n<function="), "qwen3_coder");
  EXPECT_EQ(calls_of("<tool_call>{{ name }}<arg_key>"), "glm45");
  EXPECT_EQ(calls_of("[TOOL_CALLS]"), "mistral");
  EXPECT_EQ(calls_of("<｜tool▁calls▁begin｜>"), "deepseek_v31");
  EXPECT_EQ(calls_of("<｜tool▁calls▁begin｜> ```json"), "deepseek_v3");
  EXPECT_EQ(calls_of("<|start_header_id|>ipython"), "llama3_json");
  EXPECT_EQ(calls_of("{{ content }}"), "");
  EXPECT_EQ(calls_of("<|start|>assistant<|channel|>final"), "openai");
  EXPECT_EQ(recognize_output_format("<|start|><|channel|>").reasoning->names[0], "openai_gptoss");
  EXPECT_EQ(calls_of("[func_name1(a=b...)] <|start_header_id|>ipython"), "llama4_pythonic");
  EXPECT_EQ(recognize_output_format("'</think>'").reasoning->begin, "<think>");
}

TEST(OutputFormat, FlagsWinOverTheTemplate) {
  const OutputFormat format = find_output_format("mistral", "none", "<tool_call> </think>");
  EXPECT_EQ(format.calls->begin, "[TOOL_CALLS]");
  EXPECT_EQ(format.reasoning, nullptr);
  EXPECT_EQ(find_output_format("pythonic", "openai_gptoss", "").calls->names[1], "pythonic");
  EXPECT_EQ(find_output_format("", "", "<|start_header_id|>ipython").calls->names[0],
            "llama3_json");
  EXPECT_THROW(find_output_format("other", "auto", ""), UserError);
  EXPECT_THROW(find_output_format("auto", "other", ""), UserError);
}

}  // namespace
}  // namespace megatron
