// How models write reasoning and calls of tools in their text. Each format is a row of tags; what
// the tags enclose is one of few bodies. The names are those of vLLM's --tool-call-parser and
// --reasoning-parser.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace megatron {

/// What stands between the tags of a section of calls.
enum class CallBody : std::uint8_t {
  json,        ///< {"name": …, "arguments": {…}}, or a list of such objects
  named,       ///< a name between tags, then a JSON object of arguments
  parameters,  ///< a name between tags, then each argument as text between tags
  python,      ///< [f(x=1), g()], or f(x=1) in a line each
  channels,    ///< OpenAI's messages with headers; it has no tags
};

/// How calls are written. Empty tags are left out of the text.
struct ToolCallFormat {
  std::array<std::string_view, 3> names;  ///< those that flags know; "" for no more
  /// Texts that a chat template of this format has. Without a sign it is `begin`.
  std::string_view sign = {}, other_sign = {};
  CallBody body = CallBody::json;
  std::string_view begin, end;  ///< of a section; without an end, it ends with its last call
  std::string_view call_begin, name_end, call_end;
  std::string_view key_begin, key_end, value_begin, value_end;  ///< of an argument of `parameters`
  std::string_view other_begin;  ///< another tag that may begin a section; it is part of the call
  bool begins_bare = false;      ///< whether the text may begin with a call that has no tag
  bool names_are_ids = false;    ///< whether a name is "functions.NAME:NUMBER", which is the id
  std::size_t id_length = 0;     ///< of ids that are only letters and digits; 0: "call_" and digits
  std::array<std::string_view, 2> ignored;  ///< tags around content
};

/// How reasoning is written.
struct ReasoningFormat {
  std::array<std::string_view, 6> names;
  std::string_view begin, end;
  bool begins_inside = false;  ///< whether texts begin with reasoning even if no tag says so
  bool is_channel = false;     ///< of CallBody::channels
};

/// The formats of a model. A null member: the model does not write that, or it is left in the text.
struct OutputFormat {
  const ToolCallFormat* calls = nullptr;
  const ReasoningFormat* reasoning = nullptr;
};

/// Returns the formats that a chat template's text shows.
OutputFormat recognize_output_format(std::string_view chat_template);

/// Returns the formats that flags name. "auto" or "" is what the template shows, and "none" is
/// none. Throws a UserError that lists the names if there is no such format.
OutputFormat find_output_format(const std::string& tool_call_parser,
                                const std::string& reasoning_parser,
                                std::string_view chat_template);

}  // namespace megatron
