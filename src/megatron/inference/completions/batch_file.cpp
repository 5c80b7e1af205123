#include "megatron/inference/completions/batch_file.h"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/inference/input_ids.h"

namespace megatron {

std::vector<BatchLine> read_batch(std::string_view content, const std::string& file) {
  std::vector<BatchLine> lines;
  std::map<std::string, std::string> sources;
  for (const auto& [source, text] : lines_of(content, file)) {
    std::string id = JsonCursor(parse_json(text, source), source)["custom_id"].text();
    if (const auto [other, is_new] = sources.emplace(id, source); !is_new)
      throw UserError({source + ": field 'custom_id'", "'" + id + "' is that of " + other->second,
                       "give each request its own"});
    lines.push_back({source, std::move(id), text, lines.size()});
  }
  if (lines.empty())
    throw UserError({file, "contains no request", "write one JSON object per line"});
  return lines;
}

std::set<std::string> read_answered(const std::filesystem::path& path,
                                    const std::vector<BatchLine>& lines) {
  std::set<std::string> wanted, answered;
  for (const BatchLine& line : lines) wanted.insert(line.custom_id);
  if (!std::filesystem::exists(path)) return answered;
  const std::string content = read_file(path);
  const std::size_t whole = content.rfind('\n') + 1;  // 0 without a line
  if (std::error_code code; whole < content.size()) {
    std::filesystem::resize_file(path, whole, code);
    if (code) throw_file_error("write", path, code.value());
  }
  for (const auto& [source, text] :
       lines_of(std::string_view(content).substr(0, whole), path.string())) {
    const std::string id = JsonCursor(parse_json(text, source), source)["custom_id"].text();
    if (!wanted.contains(id))
      throw UserError(
          {source, "answers '" + id + "', which is none of the requests", "give another --output"});
    answered.insert(id);
  }
  return answered;
}

CompletionRequest read_batch_request(const BatchLine& line) {
  const JsonCursor request(parse_json(line.text, line.source), line.source);
  const auto need = [&](const char* key, const std::string& value) {
    const std::string got = request[key].text();
    if (got != value)
      throw UserError({request[key].name(), "'" + got + "' is not in this version",
                       "the only one is " + value});
  };
  need("method", "POST");
  need("url", "/v1/completions");
  CompletionRequest completion = read_completion(request["body"]);
  if (completion.stream)
    throw UserError({line.source + ": field 'stream'", "a batch has no streams", "leave it out"});
  return completion;
}

std::string batch_answer(const BatchLine& line, std::int64_t status, const JsonText& body) {
  return JsonText{
             {"id", "batch_req_" + line.custom_id},
             {"custom_id", line.custom_id},
             {"response",
              {{"status_code", status}, {"request_id", "req_" + line.custom_id}, {"body", body}}},
             {"error", nullptr}}
             .dump() +
         "\n";
}

AnswerWriter::AnswerWriter(const std::filesystem::path& path, bool as_finished)
    : path_(path), as_finished_(as_finished) {
  if (path.empty()) return;
  file_.open(path, std::ios::app);
  if (!file_) throw_file_error("open", path, errno);
}

void AnswerWriter::add(std::size_t index, std::string line) {
  if (as_finished_) return write(line);
  waiting_.emplace(index, std::move(line));
  for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_; ++next_) {
    write(first->second);
    first = waiting_.erase(first);
  }
}

void AnswerWriter::write(const std::string& line) {
  std::ostream& out = path_.empty() ? std::cout : file_;
  out << line << std::flush;
  if (!out) throw_file_error("write", path_.empty() ? "standard output" : path_, EIO);
}

}  // namespace megatron
