#include "megatron/inference/completions/batch_file.h"

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/inference/input_ids.h"

namespace megatron {
namespace {

/// What batch_answer() begins with.
constexpr std::string_view kAnswerBegin = R"({"id":"batch_req_)";

}  // namespace

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

std::set<std::string> read_answered(const std::filesystem::path& output,
                                    const std::filesystem::path& requests,
                                    const std::vector<BatchLine>& lines) {
  std::set<std::string> wanted, answered;
  for (const BatchLine& line : lines) wanted.insert(line.custom_id);
  if (!std::filesystem::exists(output)) return answered;
  const std::string name = "--output " + output.string();
  const char* fix = "give another --output";
  if (!std::filesystem::is_regular_file(output)) return answered;  // such as a device or a pipe
  if (std::error_code code; std::filesystem::equivalent(output, requests, code))
    throw UserError({name, "is the file of the requests", fix});
  const std::string content = read_file(output);
  const std::size_t num_whole = content.rfind('\n') + 1;  // bytes; 0 without a line
  const std::string_view whole = std::string_view(content).substr(0, num_whole);
  for (const auto& [source, text] : lines_of(whole, name)) {
    const JsonCursor answer(parse_json(text, source), source);
    if (!answer.find("custom_id") || !answer.find("response"))
      throw UserError({source, "is not an answer to a request", fix});
    const std::string id = answer["custom_id"].text();
    if (!wanted.contains(id))
      throw UserError({source, "answers '" + id + "', which is none of the requests", fix});
    answered.insert(id);
  }
  if (num_whole == content.size()) return answered;
  const std::string_view rest = std::string_view(content).substr(num_whole);
  if (!kAnswerBegin.starts_with(rest.substr(0, kAnswerBegin.size())))
    throw UserError({name, "its last line is not an answer to a request", fix});
  std::error_code code;
  std::filesystem::resize_file(output, num_whole, code);
  if (code) throw_file_error("write", output, code.value());
  return answered;
}

bool is_batch_chat(const BatchLine& line) {
  const JsonCursor request(parse_json(line.text, line.source), line.source);
  const std::string method = request["method"].text(), url = request["url"].text();
  const auto refuse = [&](const char* key, const std::string& got, const char* fix) {
    throw UserError({request[key].name(), "'" + got + "' is not in this version", fix});
  };
  if (method != "POST") refuse("method", method, "the only one is POST");
  if (url == "/v1/chat/completions") return true;
  if (url != "/v1/completions") refuse("url", url, "give /v1/completions or /v1/chat/completions");
  return false;
}

std::string batch_body(const BatchLine& line) {
  JsonCursor(parse_json(line.text, line.source), line.source)["body"].object();
  return OrderedJson::parse(line.text)["body"].dump();
}

CompletionRequest read_batch_request(const BatchLine& line) {
  const JsonCursor request(parse_json(line.text, line.source), line.source);
  return read_completion(request["body"], line.text);
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
  if (!out) throw_file_error("write", path_.empty() ? "standard output" : path_, errno);
}

}  // namespace megatron
