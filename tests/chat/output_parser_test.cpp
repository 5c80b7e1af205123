#include "megatron/chat/output_parser.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "chat/model_outputs.h"
#include "megatron/tokenizers/chat/json_values.h"

namespace megatron {
namespace {

constexpr const char* kTools = R"([
  {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"},
                                              "c": {"type": ["object", "null"]}}}},
  {"type": "function", "function": {"name": "g"}},
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}}}}])";

Divided divide(const ModelOutput& output, const std::vector<std::string_view>& pieces) {
  OutputParser parser({.format = find_output_format(output.calls, output.reasoning, ""),
                       .prompt = output.prompt,
                       .tools = chat::read_json_value(kTools, "tools")});
  Divided divided;
  std::size_t num_calls = 0;
  const auto take = [&](const OutputDelta& delta) {
    for (const OutputPart& part : delta) {
      if (part.kind != OutputKind::call) {
        EXPECT_NE(part.text, "");
        (part.kind == OutputKind::content ? divided.content : divided.reasoning) += part.text;
        continue;
      }
      EXPECT_EQ(part.id.empty(), part.name.empty());
      if (!part.name.empty()) {
        EXPECT_EQ(part.call, num_calls++);
        divided.calls += (num_calls > 1 ? "\n" : "") + part.name + " ";
        divided.ids += part.id;
      }
      EXPECT_EQ(part.call + 1, num_calls);
      divided.calls += part.text;
    }
  };
  for (const std::string_view piece : pieces) take(parser.feed(piece));
  take(parser.finish());
  EXPECT_EQ(parser.num_calls(), num_calls);
  return divided;
}

std::vector<std::string_view> random_pieces(std::string_view text, std::mt19937& random) {
  std::vector<std::string_view> pieces;
  const std::size_t most = 1 + random() % 12;
  while (!text.empty()) {
    pieces.push_back(text.substr(0, 1 + random() % most));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

TEST(OutputParser, DividesTheTextsOfAllFormats) {
  for (const ModelOutput& output : kModelOutputs)
    EXPECT_EQ(divide(output, {output.text}), output.divided) << output.calls << ": " << output.text;
}

TEST(OutputParser, DividesTheSameAtAnyPieces) {
  std::mt19937 random(1);
  for (const ModelOutput& output : kModelOutputs)
    for (int i = 0; i < 30; ++i)
      ASSERT_EQ(divide(output, random_pieces(output.text, random)), output.divided)
          << output.calls << ": " << output.text;
}

/// A word that stands in the text stands in a part of it, wherever that breaks a call.
TEST(OutputParser, LosesNothingOfTextsThatBreak) {
  std::mt19937 random(2);
  const std::string word = "Zq7";
  for (const ModelOutput& output : kModelOutputs)
    for (std::size_t at = 0; at <= output.text.size(); ++at) {
      if ((output.text[at] & 0xC0) == 0x80) continue;  // within a character
      const std::string text = output.text.substr(0, at) + word + output.text.substr(at);
      const Divided whole = divide(output, {text});
      const bool is_there =
          (whole.reasoning + whole.content + whole.calls + whole.ids).find(word) !=
              std::string::npos ||
          text.find("call_id\": \"" + word) != std::string::npos ||
          text.find("call_id\": \"0" + word) != std::string::npos ||
          text.find("call_id\": \"1" + word) != std::string::npos;
      EXPECT_TRUE(is_there) << output.calls << ": " << text << whole;
      EXPECT_EQ(divide(output, random_pieces(text, random)), whole) << text;
      const std::string cut = output.text.substr(0, at);
      EXPECT_EQ(divide(output, random_pieces(cut, random)), divide(output, {cut})) << cut;
    }
}

TEST(OutputParser, KeepsTheOrderOfParts) {
  OutputParser parser({.format = find_output_format("hermes", "none", ""),
                       .tools = chat::read_json_value(kTools, "tools")});
  const OutputDelta begin = parser.feed("A<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1");
  ASSERT_EQ(begin.size(), 1u);  // a number may go on
  EXPECT_EQ(begin[0].text, "A");
  const OutputDelta delta = parser.feed(
      "}}</tool_call> B <tool_call>{\"name\": \"g\", \"id\": \"x\", \"arguments\": "
      "{}}</tool_call>C");
  ASSERT_EQ(delta.size(), 4u);
  EXPECT_EQ(delta[0].name, "f");
  EXPECT_EQ(delta[0].text, "{\"a\": 1}");
  EXPECT_EQ(delta[1].text, "B");
  EXPECT_EQ(delta[2].id, "x");
  EXPECT_EQ(delta[2].call, 1u);
  EXPECT_EQ(delta[3].text, " C");
}

TEST(OutputParser, ContinuesAMessageOfThePrompt) {
  for (const auto& [prompt, reasons] : std::map<std::string, bool>{
           {"<think>hm", true}, {"<think>hm</think>Hel", false}, {"Hel", false}}) {
    OutputParser parser({.format = find_output_format("none", "deepseek_r1", ""),
                         .prompt = prompt,
                         .continues = true});
    const OutputDelta delta = parser.feed("lo.");
    ASSERT_EQ(delta.size(), 1u);
    EXPECT_EQ(delta[0].kind == OutputKind::reasoning, reasons) << prompt;
  }
}

TEST(OutputParser, TakesTimeInProportionToTheText) {
  for (const char* calls : {"qwen3_coder", "hermes", "mistral", "openai", "pythonic"}) {
    const std::map<std::string, std::string> begins = {
        {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=b>\n"},
        {"hermes", "<tool_call>{\"name\": \"f\", \"x\": \""},
        {"mistral", "[TOOL_CALLS]f{\"b\": \""},
        {"openai", "<|channel|>commentary to=functions.f<|message|>{\"b\": \""},
        {"pythonic", "[f(b=\""}};
    OutputParser parser({.format = find_output_format(calls, "none", ""),
                         .tools = chat::read_json_value(kTools, "tools")});
    parser.feed(begins.at(calls));
    for (int i = 0; i < 100'000; ++i) parser.feed(i % 2 == 0 ? "x" : "\n");
    for (int i = 0; i < 5'000; ++i) parser.feed(begins.at(calls));
    parser.finish();
  }
}

}  // namespace
}  // namespace megatron
