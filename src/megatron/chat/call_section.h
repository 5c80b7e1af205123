// One section of calls in a model's text, parsed while it grows.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "megatron/chat/json_stream.h"
#include "megatron/chat/output_format.h"
#include "megatron/chat/output_machine.h"

namespace megatron {

/// A section, from the tag that begins it.
class CallSection {
 public:
  enum class State { more, done, broken };

  /// `tag` begins the text. Without one, the section must call tools of the request.
  CallSection(const ToolCallFormat& format, const ToolSchemas& tools, OutputWriter& writer,
              std::string_view tag);
  /// The arguments of one call, which follow the `header`.
  CallSection(const ToolCallFormat& format, const ToolSchemas& tools, OutputWriter& writer,
              std::string header, std::string name)
      : CallSection(format, tools, writer, "header") {
    step_ = Step::arguments;
    text_ = std::move(header);
    at_ = text_.size();
    name_ = std::move(name);
  }
  /// Takes more text. The result says whether it can be more of the section.
  State feed(std::string_view text);
  /// Ends the section where the text ends.
  State finish();
  /// Returns the text that became no call: what follows a section that is done, or all from where
  /// a broken one went wrong, with the tag if it has no call.
  std::string rest() const { return text_.substr(safe_); }
  bool has_calls() const { return num_calls_ > 0; }

 private:
  enum class Step {
    list,  ///< before a call, or between calls
    key,
    colon,
    value,
    comma,
    call_begin,
    name,
    arguments,
    call_end,
    parameter,
    parameter_key,
    value_begin,
    parameter_value,
  };
  enum class Next { again, wait, done, broken };

  Next step();
  Next read_list();
  Next read_key();
  Next read_value();
  Next read_comma();
  Next read_call_begin();
  Next read_name();
  Next read_arguments();
  Next read_parameter();
  Next read_parameter_part();

  /// Reads a JSON value into value_. Returns again when it is whole.
  Next read_whole();
  /// Skips white space. Returns the next character; '\0' if it is yet to come.
  char next_mark();
  /// Consumes `tag`. Returns wait if the text may yet become the tag, and broken if it cannot.
  Next take(std::string_view tag);
  Next go(Step step) { return step_ = step, Next::again; }
  void begin_call();
  void end_call();

  const ToolCallFormat& format_;
  const ToolSchemas& tools_;
  OutputWriter& writer_;
  bool is_bare_;
  Step step_;
  std::string text_;
  std::size_t at_ = 0;       ///< what is read
  std::size_t scanned_ = 0;  ///< where no end of a value is
  std::size_t safe_ = 0;     ///< what became calls
  std::size_t num_calls_ = 0;
  bool is_in_list_ = false;

  // The current call.
  std::string name_, id_, key_, value_;
  std::string arguments_;           ///< those that are not written yet
  bool has_arguments_ = false;      ///< its object has a member of them
  bool has_begun_ = false;          ///< it is written, but not the end of its arguments
  std::set<std::string> keys_;      ///< of CallBody::parameters
  std::optional<JsonStream> json_;  ///< the value that is being read
};

}  // namespace megatron
