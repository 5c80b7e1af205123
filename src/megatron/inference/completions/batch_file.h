// OpenAI's batch files: JSON lines of requests, each with a custom_id, and JSON lines of answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_text.h"
#include "megatron/inference/completions/completion_request.h"

namespace megatron {

/// A line {"custom_id": …, "method": "POST", "url": …, "body": {…}}.
struct BatchLine {
  std::string source;  ///< its file and number
  std::string custom_id;
  std::string text;
  std::uint64_t number = 0;  ///< place among the requests of the file
};

/// Returns the lines of a file but blank ones. UserError that names the line which is no JSON
/// object, or whose custom_id is missing or that of another line.
std::vector<BatchLine> read_batch(std::string_view content, const std::string& file);

/// Returns the custom_ids that the file of --output has answers to; none if it does not exist. Cuts
/// off an incomplete last answer. UserError, and the file is left as it is, when it is the file of
/// the requests, holds something other than answers, or an answer to none of `lines`.
std::set<std::string> read_answered(const std::filesystem::path& output,
                                    const std::filesystem::path& requests,
                                    const std::vector<BatchLine>& lines);

/// Returns whether the request of a line is for /v1/chat/completions, and not for /v1/completions.
/// UserError that names the line when it is for another API.
bool is_batch_chat(const BatchLine& line);
/// Returns the body of a line, with the client's order of keys. UserError if there is none.
std::string batch_body(const BatchLine& line);
/// Returns the completion of a line. UserError that names the line when read_completion() refuses
/// its body.
CompletionRequest read_batch_request(const BatchLine& line);

/// Returns the line of an answer, which ends in a line break.
std::string batch_answer(const BatchLine& line, std::int64_t status, const JsonText& body);

/// Writes answers to a file, behind those that it has, or to standard output.
class AnswerWriter {
 public:
  /// `path` is empty for standard output. With `as_finished` answers are written at once, otherwise
  /// in ascending order of their index, from 0.
  AnswerWriter(const std::filesystem::path& path, bool as_finished);

  /// Takes the answer of a request, a line with its line break, and writes it, or keeps it until
  /// all answers of lower indices are there. UserError when the file cannot be written.
  void add(std::size_t index, std::string line);

 private:
  void write(const std::string& line);

  std::filesystem::path path_;
  std::ofstream file_;
  bool as_finished_;
  std::map<std::size_t, std::string> waiting_;
  std::size_t next_ = 0;
};

}  // namespace megatron
