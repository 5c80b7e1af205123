// The connections to the server, and the threads that send on them.
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/json_fwd.h"
#include "megatron/base/progress_bar.h"
#include "megatron/load_test/load.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
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

/// Returns what an error in OpenAI's form says, or the first line of the body.
std::string message_of(const std::string& body) {
  const Json json = parse(body);
  const Json& message = part(json, {"error", "message"});
  const std::string text = message.is_string() ? message.get<std::string>() : body;
  return text.substr(0, std::min<std::size_t>(text.find('\n'), 200));
}

/// Reads server-sent events and notes when tokens come.
struct AnswerReader {
  RequestRecord& record;
  Clock::time_point begin;
  std::string rest = {};
  bool is_done = false;
  std::int64_t num_chunks = 0;
  double last_s = 0;

  double now() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }

  void read(std::string_view bytes) {
    rest += bytes;
    std::size_t from = 0;
    for (std::size_t end; (end = rest.find('\n', from)) != std::string::npos; from = end + 1)
      read_line(rest.substr(from, end - from));
    rest.erase(0, from);
  }

  void read_line(const std::string& line) {
    if (!line.starts_with("data:")) return;
    if (line.find("[DONE]") <= std::string("data: ").size()) {
      is_done = true;
      return;
    }
    const Json event = parse(line.substr(5));
    if (!event.is_object() || event.contains("error"))
      record.error = "error in the stream: " + message_of(line.substr(5));
    if (brings_token(event)) {
      const double time = now();
      num_chunks++ == 0 ? void(record.first_s = time) : record.gaps_s.push_back(time - last_s);
      last_s = time;
    }
    const auto count = [&](const char* name, std::int64_t& tokens) {
      const Json& value = part(event, {"usage", name});
      if (value.is_number_integer()) tokens = value.get<std::int64_t>();
    };
    count("prompt_tokens", record.prompt_tokens);
    count("completion_tokens", record.output_tokens);
  }

  /// A token of a completion may be a part of a character and have no text yet. Chats begin with a
  /// chunk that has only the role, and some servers end with one that has only the reason.
  static bool brings_token(const Json& event) {
    const auto has = [&](std::initializer_list<const char*> names) {
      const Json& text = part(event, names);
      return text.is_string() ? !text.get_ref<const std::string&>().empty() : !text.empty();
    };
    if (part(event, {"choices", "text"}).is_string())
      return has({"choices", "text"}) || !has({"choices", "finish_reason"});
    return has({"choices", "delta", "content"}) || has({"choices", "delta", "tool_calls"}) ||
           has({"choices", "delta", "reasoning_content"}) || has({"choices", "delta", "reasoning"});
  }

  /// Sets the end, and an error if the answer is not whole.
  void finish() {
    record.end_s = now();
    if (record.error.empty() && !is_done) record.error = "the answer ended early";
    if (record.error.empty() && num_chunks == 0) record.error = "the answer has no token";
    if (record.output_tokens == 0) record.output_tokens = num_chunks;
  }
};

/// Returns where the path of a URL begins.
std::size_t path_of(const std::string& url) {
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    throw UserError({"--url", "'" + url + "' is no address of a server",
                     "write for example --url http://127.0.0.1:8000"});
  return std::min(url.find('/', url.find("://") + 3), url.size());
}

/// A connection, which is kept for further requests. The path of the URL goes before other paths.
struct Connection {
  httplib::Client http;
  std::string prefix;

  explicit Connection(const BenchServeOptions& options)
      : http(options.url.substr(0, path_of(options.url))),
        prefix(options.url.substr(path_of(options.url))) {
    while (prefix.ends_with('/')) prefix.pop_back();
    if (prefix.ends_with("/v1")) prefix.resize(prefix.size() - 3);
    http.set_tcp_nodelay(true);
    http.set_keep_alive(true);
    http.set_read_timeout(std::chrono::duration<double>(std::min(options.timeout_seconds, 1e6)));
    if (!options.api_key.empty()) http.set_bearer_token_auth(options.api_key);
  }
};

/// Sends a request and reads the streamed answer. Does not throw for what the server does.
RequestRecord send(Connection& connection, const std::string& path, const std::string& body,
                   Clock::time_point begin) {
  RequestRecord record;
  AnswerReader reader{record, begin};
  std::string refusal;
  int status = 0;
  httplib::Request request;
  request.method = "POST";
  request.path = connection.prefix + path;
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
  if (!connection.http.send(request, response, error))
    record.error = "no answer: " + httplib::to_string(error);
  else if (status != kOk)
    record.error = "HTTP " + std::to_string(status) + ": " + message_of(refusal);
  reader.finish();
  return record;
}

}  // namespace

std::string first_model(const BenchServeOptions& options) {
  Connection connection(options);
  const httplib::Result answer = connection.http.Get(connection.prefix + "/v1/models");
  if (!answer)
    throw UserError({options.url, "no answer: " + httplib::to_string(answer.error()),
                     "start a server, as with megatron serve --load DIR, or name it with --url"});
  const Json json = parse(answer->body);
  const Json& id = part(json, {"data", "id"});
  if (answer->status != kOk || !id.is_string())
    throw UserError({options.url + "/v1/models",
                     "HTTP " + std::to_string(answer->status) + ": " + message_of(answer->body),
                     answer->status == 401 ? "give --api-key" : "name the model with --model"});
  return id.get<std::string>();
}

std::vector<std::int64_t> tokenize(const BenchServeOptions& options, const std::string& text) {
  Connection connection(options);
  const Json body = {{"model", options.model}, {"prompt", text}, {"add_special_tokens", false}};
  const httplib::Result answer =
      connection.http.Post(connection.prefix + "/tokenize", body.dump(), "application/json");
  std::vector<std::int64_t> ids;
  if (!answer || answer->status != kOk) return ids;
  const Json json = parse(answer->body);
  for (const Json& token : part(json, {"tokens"})) {
    if (token.is_number_integer()) ids.push_back(token.get<std::int64_t>());
  }
  return ids;
}

std::vector<RequestRecord> run_load(const Load& load, const BenchServeOptions& options,
                                    const Trace& trace) {
  const Connection first(options);  // throws here, where no thread runs, what is wrong with --url
  const std::string path = options.endpoint == "chat" ? "/v1/chat/completions" : "/v1/completions";
  const double total = options.num_prompts ? static_cast<double>(*options.num_prompts)
                                           : std::ceil(*options.max_seconds);
  ProgressBar progress({.title = load.name,
                        .total = static_cast<std::uint64_t>(total),
                        .unit = options.num_prompts ? "requests" : "s"});
  const auto begin = Clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::mutex mutex;
  std::vector<RequestRecord> records;
  std::int64_t num_started = 0;
  double due_s = 0;
  const auto work = [&] {
    Connection connection(options);
    for (std::unique_lock lock(mutex);;) {
      due_s += trace.gap(load.arrivals, num_started);
      if ((options.num_prompts && num_started >= *options.num_prompts) ||
          (options.max_seconds && std::max(due_s, elapsed_s()) >= *options.max_seconds))
        return;
      const std::int64_t index = num_started++;
      const double own_due_s = due_s;
      lock.unlock();
      const std::string body = trace.body(index);
      std::this_thread::sleep_until(begin + std::chrono::duration<double>(own_due_s));
      RequestRecord record = send(connection, path, body, begin);
      record.late_s = record.start_s - own_due_s;
      lock.lock();
      records.push_back(std::move(record));
      progress.update(options.num_prompts ? records.size()
                                          : static_cast<std::uint64_t>(elapsed_s()));
    }
  };
  {
    std::vector<std::jthread> threads;
    const auto count = std::min(load.num_streams, options.num_prompts.value_or(load.num_streams));
    for (std::int64_t i = 0; i < count; ++i) threads.emplace_back(work);
  }
  return records;
}

}  // namespace megatron
