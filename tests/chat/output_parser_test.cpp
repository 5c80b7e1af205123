#include "megatron/chat/output_parser.h"

#include <gtest/gtest.h>

#include "megatron/tokenizers/chat/json_values.h"

namespace megatron {
namespace {

TEST(OutputParser, DividesAHermesTextAtAnyPieces) {
  const std::string text =
      "<think>\nhm</think>Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, "
      "\"}\"]}}\n"
      "</tool_call>";
  for (const std::size_t size : {std::size_t{1}, std::size_t{3}, text.size()}) {
    OutputParser parser({.format = recognize_output_format("<tool_call> </think>"),
                         .tools = chat::read_json_value(R"([{"name": "f"}])", "tools")});
    std::string reasoning, content, name, arguments;
    const auto take = [&](const OutputDelta& delta) {
      reasoning += delta.reasoning, content += delta.content;
      for (const ToolCallDelta& call : delta.calls) name += call.name, arguments += call.arguments;
    };
    for (std::size_t at = 0; at < text.size(); at += size) take(parser.feed(text.substr(at, size)));
    take(parser.finish());
    EXPECT_EQ(reasoning, "\nhm");
    EXPECT_EQ(content, "Sure.");
    EXPECT_EQ(name, "f");
    EXPECT_EQ(arguments, "{\"a\": [1, \"}\"]}");
    EXPECT_EQ(parser.num_calls(), 1u);
  }
}

}  // namespace
}  // namespace megatron
