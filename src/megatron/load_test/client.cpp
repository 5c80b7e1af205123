#include "megatron/load_test/client.h"

#include <httplib.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json_fwd.h"

namespace megatron {
namespace {

constexpr int kOk = 200;

/// Returns what stands at the names, each in the one before it, or in its first element if that is
/// an array. Null if there is nothing.
const Json& part(const Json& json, std::initializer_list<const char*> names) {
  static const Json nothing;
  const Json* at = &json;
  for (const char* name : names) {
    if (at->is_array() && !at->empty()) at = &at->front();
    const auto found = at->is_object() ? at->find(name) : at->end();
    if (!at->is_object() || found == at->end()) return nothing;
    at = &*found;
  }
  return *at;
}

Json parse(std::string_view text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

/// Returns what an error in OpenAI's form says, or the beginning of the body.
std::string message_of(const std::string& body) {
  const Json json = parse(body);
  const Json& message = part(json, {"error", "message"});
  return (message.is_string() ? message.get<std::string>() : body).substr(0, 200);
}

/// Reads server-sent events and notes when tokens come.
class AnswerReader {
 public:
  AnswerReader(RequestRecord& record, LoadClient::Clock::time_point begin)
      : record_(record), begin_(begin) {}

  double now() const {
    return std::chrono::duration<double>(LoadClient::Clock::now() - begin_).count();
  }

  void read(std::string_view bytes) {
    rest_ += bytes;
    std::size_t from = 0;
    for (std::size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1)
      read_line(std::string_view(rest_).substr(from, end - from));
    rest_.erase(0, from);
  }

  /// Sets the end, and an error if the answer is not whole.
  void finish() {
    record_.end_s = now();
    if (record_.error.empty() && !is_done_) record_.error = "the answer ended early";
    if (record_.error.empty() && num_chunks_ == 0) record_.error = "the answer has no token";
    if (record_.output_tokens == 0) record_.output_tokens = num_chunks_;
  }

 private:
  void read_line(std::string_view line) {
    if (!line.starts_with("data:")) return;
    line.remove_prefix(5);
    if (line.find("[DONE]") < 2) {
      is_done_ = true;
      return;
    }
    const Json event = parse(line);
    if (!event.is_object()) record_.error = "an event is not JSON";
    if (event.contains("error")) record_.error = "error in the stream: " + message_of(event.dump());
    if (brings_token(event)) note_token();
    const Json& usage = part(event, {"usage"});
    if (usage.is_object()) {
      record_.prompt_tokens = count(part(usage, {"prompt_tokens"}));
      record_.output_tokens = count(part(usage, {"completion_tokens"}));
    }
  }

  static std::int64_t count(const Json& json) {
    return json.is_number_integer() ? json.get<std::int64_t>() : 0;
  }

  /// A token of a completion may be a part of a character and have no text yet. Chats begin with a
  /// chunk that has only the role, and some servers end with one that has only the reason.
  static bool brings_token(const Json& event) {
    const auto has = [&](std::initializer_list<const char*> names) {
      const Json& text = part(event, names);
      return !text.empty() && text != "";
    };
    if (part(event, {"choices", "text"}).is_string())
      return has({"choices", "text"}) || !has({"choices", "finish_reason"});
    return has({"choices", "delta", "content"}) || has({"choices", "delta", "tool_calls"}) ||
           has({"choices", "delta", "reasoning_content"}) || has({"choices", "delta", "reasoning"});
  }

  void note_token() {
    const double time = now();
    if (num_chunks_++ > 0) record_.gaps_s.push_back(time - last_s_);
    if (num_chunks_ == 1) record_.first_s = time;
    last_s_ = time;
  }

  RequestRecord& record_;
  LoadClient::Clock::time_point begin_;
  std::string rest_;
  bool is_done_ = false;
  std::int64_t num_chunks_ = 0;
  double last_s_ = 0;
};

}  // namespace

struct LoadClient::Connection {
  std::string url, prefix, endpoint;
  httplib::Client http;
};

LoadClient::LoadClient(const BenchServeOptions& options) {
  const std::size_t scheme = options.url.find("://");
  const std::size_t path = scheme == std::string::npos ? scheme : options.url.find('/', scheme + 3);
  std::string prefix = path == std::string::npos ? "" : options.url.substr(path);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (prefix.ends_with("/v1")) prefix.resize(prefix.size() - 3);
  connection_ = std::make_unique<Connection>(Connection{
      options.url, prefix, options.endpoint == "chat" ? "/v1/chat/completions" : "/v1/completions",
      httplib::Client(options.url.substr(0, path))});
  httplib::Client& http = connection_->http;
  if (scheme == std::string::npos || !http.is_valid())
    throw UserError({"--url", "'" + options.url + "' is no address of a server",
                     "write for example --url http://127.0.0.1:8000"});
  http.set_tcp_nodelay(true);
  http.set_keep_alive(true);
  http.set_connection_timeout(std::chrono::seconds(10));
  http.set_read_timeout(std::chrono::duration<double>(std::min(options.timeout_seconds, 1e6)));
  if (!options.api_key.empty()) http.set_bearer_token_auth(options.api_key);
}

LoadClient::~LoadClient() = default;

std::string LoadClient::first_model() {
  const httplib::Result answer = connection_->http.Get(connection_->prefix + "/v1/models");
  if (!answer)
    throw UserError({connection_->url, "no answer: " + httplib::to_string(answer.error()),
                     "start a server, as with megatron serve --load DIR, or name it with --url"});
  const Json json = parse(answer->body);
  const Json& id = part(json, {"data", "id"});
  if (answer->status != kOk || !id.is_string())
    throw UserError({connection_->url + "/v1/models",
                     "HTTP " + std::to_string(answer->status) + ": " + message_of(answer->body),
                     answer->status == 401 ? "give --api-key" : "name the model with --model"});
  return id.get<std::string>();
}

std::vector<std::int64_t> LoadClient::tokenize(const std::string& text, const std::string& model) {
  const Json body = {{"model", model}, {"prompt", text}, {"add_special_tokens", false}};
  const httplib::Result answer =
      connection_->http.Post(connection_->prefix + "/tokenize", body.dump(), "application/json");
  if (!answer || answer->status != kOk) return {};
  std::vector<std::int64_t> ids;
  const Json json = parse(answer->body);
  for (const Json& token : part(json, {"tokens"})) {
    if (token.is_number_integer()) ids.push_back(token.get<std::int64_t>());
  }
  return ids;
}

RequestRecord LoadClient::send(const std::string& body, Clock::time_point begin) {
  RequestRecord record;
  AnswerReader reader(record, begin);
  std::string refusal;
  int status = 0;
  httplib::Request request;
  request.method = "POST";
  request.path = connection_->prefix + connection_->endpoint;
  request.headers = {{"Content-Type", "application/json"}};
  request.body = body;
  request.response_handler = [&](const httplib::Response& response) {
    status = response.status;
    return true;
  };
  request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    status == kOk ? reader.read({data, size}) : void(refusal.append(data, size));
    return true;
  };
  record.start_s = reader.now();
  httplib::Response response;
  httplib::Error error = httplib::Error::Success;
  if (!connection_->http.send(request, response, error))
    record.error = "no answer: " + httplib::to_string(error);
  else if (status != kOk)
    record.error = "HTTP " + std::to_string(status) + ": " + message_of(refusal);
  reader.finish();
  return record;
}

}  // namespace megatron
