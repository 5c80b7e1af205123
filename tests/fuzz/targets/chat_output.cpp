// What chat models write. The first byte of the input chooses the format, the second how the rest,
// the text, is cut into pieces. It may have any bytes.
#include <array>
#include <nlohmann/json.hpp>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/json.h"
#include "megatron/chat/output_parser.h"
#include "megatron/tokenizers/chat/json_values.h"

namespace megatron::fuzz {
namespace {

/// Each kind with its text, and the calls with their names.
struct Divided {
  std::string reasoning, content;
  std::vector<OutputPart> calls;
};

Divided divide(const OutputFormat& format, std::string_view text, std::size_t piece_size) {
  static const chat::Value tools = chat::read_json_value(
      R"([{"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}])", "tools");
  OutputParser parser({.format = format, .tools = tools});
  Divided divided;
  const auto take = [&](const OutputDelta& delta) {
    for (const OutputPart& part : delta) {
      if (part.kind != OutputKind::call) {
        (part.kind == OutputKind::content ? divided.content : divided.reasoning) += part.text;
        continue;
      }
      require(part.name.empty() == part.id.empty(), "a call begins without its name or id");
      if (!part.name.empty()) divided.calls.push_back({.call = part.call, .name = part.name});
      require(part.call + 1 == divided.calls.size(), "the pieces of calls are mixed");
      divided.calls.back().text += part.text;
    }
  };
  for (; !text.empty(); text.remove_prefix(std::min(piece_size, text.size())))
    take(parser.feed(text.substr(0, piece_size)));
  take(parser.finish());
  require(parser.num_calls() == divided.calls.size(), "the number of calls is wrong");
  return divided;
}

}  // namespace

void parse_chat_output(std::string_view input) {
  constexpr std::array<std::pair<const char*, const char*>, 15> kFormats = {
      {{"openai", "openai_gptoss"},
       {"kimi_k2", "kimi_vl"},
       {"deepseek_v3", "deepseek_r1"},
       {"minimax_m2", "minimax_m2"},
       {"glm45", "glm45"},
       {"qwen3_coder", "qwen3"},
       {"mistral", "mistral"},
       {"cohere", "cohere_command3"},
       {"jamba", "none"},
       {"phi4_mini_json", "none"},
       {"olmo3", "olmo3"},
       {"hermes", "qwen3"},
       {"llama4_pythonic", "none"},
       {"llama4_json", "none"},
       {"llama3_json", "none"}}};
  if (input.size() < 2) return;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
  const auto [calls, reasoning] = kFormats[byte(0) % kFormats.size()];
  const OutputFormat format = find_output_format(calls, reasoning, "");
  const std::string_view text = input.substr(2);
  const Divided whole = divide(format, text, std::max<std::size_t>(text.size(), 1)),
                pieces = divide(format, text, 1 + byte(1) % 16);
  require(whole.reasoning == pieces.reasoning, "pieces change the reasoning");
  require(whole.content == pieces.content, "pieces change the content");
  require(whole.calls.size() == pieces.calls.size(), "pieces change the number of calls");
  for (std::size_t i = 0; i < whole.calls.size(); ++i) {
    require(whole.calls[i].name == pieces.calls[i].name, "pieces change the name of a call");
    require(whole.calls[i].text == pieces.calls[i].text, "pieces change the arguments of a call");
    if (i + 1 == whole.calls.size()) break;                            // it may be cut
    const std::string text = compact_json(Json(whole.calls[i].text));  // valid UTF-8
    parse_json(parse_json(text, "text").get<std::string>(), "arguments");
  }
}

}  // namespace megatron::fuzz
