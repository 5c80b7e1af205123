// One section of calls in a model's text, parsed while it grows.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/chat/output_format.h"
#include "megatron/chat/output_parser.h"
#include "megatron/tokenizers/chat/value.h"

namespace megatron {

/// The names of a request's tools, and the types of their parameters.
class ToolSchemas {
 public:
  /// Reads a list of tools, with or without {"type": "function", "function": …} around them.
  explicit ToolSchemas(const chat::Value& tools);
  bool empty() const { return tools_.empty(); }
  bool has(const std::string& tool) const { return tools_.contains(tool); }
  /// Returns whether the parameter is a text, which is also assumed of unknown ones.
  bool is_text(const std::string& tool, const std::string& parameter) const;

 private:
  std::map<std::string, std::map<std::string, bool>> tools_;  ///< tool → parameter → is text
};

/// Counts the calls of a text and writes them into its deltas.
class CallWriter {
 public:
  /// `id_length` as in ToolCallFormat.
  CallWriter(std::string id_seed, std::size_t id_length)
      : id_seed_(std::move(id_seed)), id_length_(id_length) {}
  /// Begins a call. An empty id is made here.
  void begin(std::string name, std::string id = {});
  /// Appends to the arguments of the last call.
  void add_arguments(std::string_view text);
  std::size_t count() const { return count_; }
  OutputDelta delta;  ///< what is not sent yet

 private:
  std::string id_seed_;
  std::size_t id_length_;
  std::size_t count_ = 0;
};

/// Finds the end of one JSON value by its brackets and quotes.
class JsonExtent {
 public:
  /// Returns how many characters of `text`, which continues the value, belong to it.
  std::size_t read(std::string_view text);
  bool is_done() const { return state_ == State::done; }
  bool is_broken() const { return state_ == State::broken; }

 private:
  enum class State { start, scalar, text, inside, done, broken };
  State state_ = State::start;
  bool is_escaped_ = false, in_text_ = false;
  std::string closers_;  ///< the brackets to come
};

/// A section, from the tag that begins it.
class CallSection {
 public:
  enum class State { more, done, broken };

  /// `is_bare`: the section has no tag, and must call tools of the request.
  CallSection(const ToolCallFormat& format, const ToolSchemas& tools, CallWriter& calls,
              bool is_bare);
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
    section_begin,
    list,  ///< before an object, or between objects
    key,
    colon,
    value,
    call_begin,
    name,
    arguments,
    call_end,
    argument,  ///< of CallBody::parameters
  };
  enum class Next { again, wait, done, broken };

  Next step();
  Next read_list();
  Next read_key();
  Next read_value();
  Next end_object();
  Next read_call_begin();
  Next read_name();
  Next read_arguments();
  Next read_call_end();
  Next read_argument();

  void skip_space();
  bool is_at_end() const { return at_ == text_.size(); }
  /// Consumes `tag`. Returns wait if the text may yet become the tag, and broken if it cannot.
  Next take(std::string_view tag);
  /// Returns the text before the next `tag` and consumes both; nullopt if the tag is yet to come.
  std::optional<std::string> take_until(std::string_view tag);
  /// Ends the arguments of a call that stops short.
  void close();
  void begin_call();
  void end_call();

  const ToolCallFormat& format_;
  const ToolSchemas& tools_;
  CallWriter& calls_;
  bool is_bare_;
  Step step_ = Step::section_begin;
  std::string text_;
  std::size_t at_ = 0;    ///< what is read
  std::size_t safe_ = 0;  ///< what became calls
  std::size_t num_calls_ = 0;
  bool is_in_list_ = false;

  // The current call.
  std::string name_, id_, key_;
  bool has_begun_ = false;
  std::string late_arguments_;  ///< those that stand before the name
  JsonExtent extent_;
  std::size_t value_begin_ = 0;
};

}  // namespace megatron
