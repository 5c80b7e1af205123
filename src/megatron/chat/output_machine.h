// What the parsers of texts share: the parts that they write, and the tools that may be called.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "megatron/chat/output_parser.h"
#include "megatron/tokenizers/chat/value.h"

namespace megatron {

inline constexpr std::string_view kSpace = " \t\r\n";

/// The names of a request's tools, and the types of their parameters.
class ToolSchemas {
 public:
  /// Reads a list of tools, with or without {"type": "function", "function": …} around them.
  explicit ToolSchemas(const chat::Value& tools);
  bool empty() const { return names_.empty(); }
  bool has(const std::string& tool) const { return names_.contains(tool); }
  /// Returns whether the parameter is a text, which is also assumed of unknown ones.
  bool is_text(const std::string& tool, const std::string& parameter) const {
    return !values_.contains({tool, parameter});
  }

 private:
  std::set<std::string> names_;
  std::set<std::pair<std::string, std::string>> values_;  ///< tools and parameters that are no text
};

/// Collects the parts of a text and counts its calls.
class OutputWriter {
 public:
  /// `id_length` as in ToolCallFormat.
  OutputWriter(std::string id_seed, std::size_t id_length)
      : id_seed_(std::move(id_seed)), id_length_(id_length) {}
  /// Begins a call. An empty id is made here.
  void begin_call(std::string name, std::string id = {});
  /// Appends to what is written, of a call to the arguments of the last one.
  void add(OutputKind kind, std::string_view text);
  std::size_t num_calls() const { return num_calls_; }
  /// Returns the parts since the last time.
  OutputDelta take() { return std::exchange(parts_, {}); }

 private:
  std::string id_seed_;
  std::size_t id_length_;
  std::size_t num_calls_ = 0;
  OutputDelta parts_;
};

/// Parses the text of one family of formats.
class OutputParser::Machine {
 public:
  explicit Machine(const OutputParserOptions& options)
      : calls_(options.format.calls),
        reasoning_(options.format.reasoning),
        tools_(options.tools),
        writer_(options.id_seed, calls_ == nullptr ? 0 : calls_->id_length) {
    if (tools_.empty()) calls_ = nullptr;
  }
  virtual ~Machine() = default;

  OutputDelta feed(std::string_view piece, bool is_last) {
    pending_ += piece;
    while (advance(is_last)) {
    }
    return writer_.take();
  }
  std::size_t num_calls() const { return writer_.num_calls(); }

 protected:
  /// Takes from `pending_`. Returns whether there may be more to do.
  virtual bool advance(bool is_last) = 0;
  struct Tag {
    std::size_t at;
    std::string_view text;
  };
  /// Returns the first of `tags` in pending_, without those that are empty. If there is none, its
  /// text is "", and it stands before what may yet become one.
  Tag find_tag(std::initializer_list<std::string_view> tags, bool is_last) const;

  const ToolCallFormat* calls_;  ///< null: calls are content
  const ReasoningFormat* reasoning_;
  ToolSchemas tools_;
  OutputWriter writer_;
  std::string pending_;
};

/// The machine of CallBody::channels.
std::unique_ptr<OutputParser::Machine> make_channel_machine(const OutputParserOptions& options);

}  // namespace megatron
