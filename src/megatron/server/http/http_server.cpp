#include "megatron/server/http/http_server.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "megatron/base/descriptor.h"
#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"
#include "megatron/base/listening_socket.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/base/words.h"
#include "megatron/inference/completions/completion_request.h"
#include "megatron/server/http/http_exchange.h"

namespace megatron {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Files that the process opens beside the connections.
constexpr std::int64_t kOtherFiles = 512;

/// Raises the limit of open files and returns how many connections it allows.
std::int64_t raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kOtherFiles;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto files = static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
  return std::max<std::int64_t>(files / 2, files - kOtherFiles);
}

/// Makes connections, which inherit the options, notice hosts that have vanished.
void keep_alive(int socket) {
  const int on = 1, idle_s = 60, interval_s = 20, count = 3;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

int socket_of(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/// What the library keeps of a request: a reference that it releases in on_completed().
struct OpenRequest {
  std::shared_ptr<HttpExchange> exchange;
  std::uint64_t connection;   ///< its number
  bool is_handled = false;    ///< the handler was called
  std::size_t discarded = 0;  ///< bytes of a body that is too large
};

ssize_t read_stream(void* exchange, std::uint64_t /*position*/, char* buffer, std::size_t size) {
  const std::int64_t count =
      (*static_cast<std::shared_ptr<HttpExchange>*>(exchange))->read(buffer, size);
  if (count == HttpExchange::kStreamEnd) return MHD_CONTENT_READER_END_OF_STREAM;
  return count < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : static_cast<ssize_t>(count);
}

void free_stream(void* exchange) { delete static_cast<std::shared_ptr<HttpExchange>*>(exchange); }

MHD_Result queue(MHD_Connection* connection, const std::shared_ptr<HttpExchange>& exchange,
                 HttpExchange::Head head) {
  MHD_Response* response = nullptr;
  if (head.is_stream)
    response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream,
                                          new std::shared_ptr<HttpExchange>(exchange), free_stream);
  else
    response =
        MHD_create_response_from_buffer(head.body.size(), head.body.data(), MHD_RESPMEM_MUST_COPY);
  if (!response) return MHD_NO;
  for (const auto& [name, value] : head.headers)
    MHD_add_response_header(response, name.c_str(), value.c_str());
  const MHD_Result result =
      MHD_queue_response(connection, static_cast<unsigned>(head.status), response);
  MHD_destroy_response(response);
  return result;
}

}  // namespace

/// The library's daemon with its callbacks. Besides it, a thread watches the connections: for
/// clients that go while their requests wait, which the library does not see, and for requests that
/// take too long to arrive.
class HttpServer::Daemon {
 public:
  Daemon(const HttpOptions& options, HttpHandler handler)
      : options_(options),
        handler_(std::move(handler)),
        max_connections_(std::min(options.max_connections, raise_open_files())),
        listener_(listen_at(options.host, options.port)),
        port_(local_endpoint(listener_.number()).port),
        watch_(::epoll_create1(EPOLL_CLOEXEC)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    MEGATRON_CHECK(watch_.is_open() && wake_.is_open(), "no descriptors for the HTTP server");
    keep_alive(listener_.number());
    watch(wake_.number(), 0);
    // Threads share the limit equally and stop to accept beyond it, so that it is not to be the
    // one that is reached: on_accept() refuses.
    const auto limit = static_cast<unsigned>(max_connections_ + 64) * options.num_threads;
    daemon_ = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, on_accept, this, on_request,
        this, MHD_OPTION_LISTEN_SOCKET, static_cast<MHD_socket>(listener_.number()),
        MHD_OPTION_THREAD_POOL_SIZE, options.num_threads, MHD_OPTION_CONNECTION_LIMIT, limit,
        MHD_OPTION_CONNECTION_TIMEOUT, static_cast<unsigned>(options.idle_timeout_s),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, options.max_header_bytes, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, this, MHD_OPTION_NOTIFY_CONNECTION, on_connection, this,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!daemon_)
      throw UserError({"the HTTP server", "cannot start its threads",
                       "raise the limits of processes and of open files (ulimit -u, ulimit -n)"});
    watcher_ = std::thread([this] { run_watcher(); });
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  ~Daemon() { stop(); }

  std::int64_t port() const { return port_; }

  std::size_t num_open() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(
        connections_, [](const auto& one) { return one.second.exchange != nullptr; }));
  }

  void stop_listening() {
    if (daemon_ && !is_quiet_.exchange(true)) MHD_quiesce_daemon(daemon_);
    ::shutdown(listener_.number(), SHUT_RDWR);
  }

  void stop() {
    if (!daemon_) return;
    stop_listening();
    is_stopping_ = true;
    std::vector<std::shared_ptr<HttpExchange>> open;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [number, one] : connections_)
        if (one.exchange) open.push_back(one.exchange);
    }
    for (const auto& exchange : open) exchange->disconnect();  // suspended ones must be resumed
    MHD_stop_daemon(daemon_);
    daemon_ = nullptr;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.number(), &one, sizeof one);
    watcher_.join();
  }

 private:
  struct Connection {
    int socket = -1;
    double deadline_s = kNever;  ///< for the whole of the next request to be there
    bool is_closed = false;      ///< by the client, in its direction
    std::shared_ptr<HttpExchange> exchange = {};
  };

  static MHD_Result on_accept(void* self, const sockaddr* /*address*/, socklen_t /*size*/) {
    auto& daemon = *static_cast<Daemon*>(self);
    const std::lock_guard lock(daemon.mutex_);
    const bool has_room = std::ssize(daemon.connections_) < daemon.max_connections_;
    return has_room ? MHD_YES : MHD_NO;
  }

  static void on_connection(void* self, MHD_Connection* connection, void** context,
                            MHD_ConnectionNotificationCode code) {
    auto& daemon = *static_cast<Daemon*>(self);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
      const std::lock_guard lock(daemon.mutex_);
      daemon.connections_.erase(reinterpret_cast<std::uintptr_t>(*context));
      return;
    }
    const int socket = socket_of(connection);
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(daemon.mutex_);
      number = ++daemon.last_number_;
      daemon.connections_[number] = {.socket = socket,
                                     .deadline_s = daemon.deadline_of_next_request()};
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a number, which is never read as an address.
    *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number));
    daemon.watch(socket, number);
  }

  static void on_completed(void* self, MHD_Connection* /*connection*/, void** slot,
                           MHD_RequestTerminationCode code) {
    auto& daemon = *static_cast<Daemon*>(self);
    const std::unique_ptr<OpenRequest> request(
        static_cast<OpenRequest*>(std::exchange(*slot, nullptr)));
    if (!request) return;
    request->exchange->complete(code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    const std::lock_guard lock(daemon.mutex_);
    if (const auto found = daemon.connections_.find(request->connection);
        found != daemon.connections_.end()) {
      found->second.exchange = nullptr;
      found->second.deadline_s = daemon.deadline_of_next_request();
    }
  }

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path,
                               const char* method, const char* /*version*/, const char* data,
                               std::size_t* size, void** slot) {
    auto& daemon = *static_cast<Daemon*>(self);
    if (daemon.is_stopping_) return MHD_NO;
    auto* request = static_cast<OpenRequest*>(*slot);
    if (!request) {
      *slot = request = daemon.make_request(connection, path, method).release();
      return daemon.begin(connection, *request);
    }
    if (*size > 0)
      return daemon.take_body(connection, *request, {data, std::exchange(*size, std::size_t{0})});
    if (request->discarded > 0) return MHD_NO;  // it has its answer
    daemon.handle(*request);
    return daemon.proceed(connection, *request);
  }

  double deadline_of_next_request() const {
    return monotonic_seconds() +
           static_cast<double>(options_.idle_timeout_s + options_.receive_timeout_s);
  }

  std::unique_ptr<OpenRequest> make_request(MHD_Connection* connection, const char* path,
                                            const char* method) {
    auto exchange = std::make_shared<HttpExchange>(
        options_, [connection] { MHD_suspend_connection(connection); },
        [connection] { MHD_resume_connection(connection); },
        [connection] { ::shutdown(socket_of(connection), SHUT_RDWR); });
    HttpRequest& request = exchange->request;
    request.method = method;
    request.path = path;
    const auto* address = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const sockaddr* client = address->client_addr;
    request.remote = numeric_endpoint(*client, client->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                                             : sizeof(sockaddr_in))
                         .host;
    MHD_get_connection_values(
        connection, MHD_HEADER_KIND,
        [](void* headers, MHD_ValueKind, const char* name, const char* value) {
          static_cast<HttpHeaders*>(headers)->emplace_back(lower_case(name), value ? value : "");
          return MHD_YES;
        },
        &request.headers);
    const auto* context = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const auto number = reinterpret_cast<std::uintptr_t>(context->socket_context);
    const std::lock_guard lock(mutex_);
    connections_[number].exchange = exchange;
    return std::make_unique<OpenRequest>(
        OpenRequest{.exchange = std::move(exchange), .connection = number});
  }

  /// Begins a request whose headers are there.
  MHD_Result begin(MHD_Connection* connection, OpenRequest& request) {
    const std::string* length = request.exchange->request.header("content-length");
    const std::string* encoding = request.exchange->request.header("transfer-encoding");
    if (encoding && (length || lower_case(*encoding) != "chunked"))  // its end would be a guess
      return queue(connection, request.exchange,
                   {.status = 400,
                    .headers = {{"Content-Type", "application/json"}},
                    .body = error_json({400, "the length of the body is not clear"}).dump()});
    const auto size = length ? exact_number<std::uint64_t>(*length) : std::nullopt;
    if (!size || *size <= options_.max_body_bytes) return MHD_YES;
    if (!request.exchange->request.header("expect")) return refuse_body(connection, request);
    request.exchange->request.is_too_large = true;
    handle(request);
    return proceed(connection, request);
  }

  MHD_Result take_body(MHD_Connection* connection, OpenRequest& request, std::string_view data) {
    std::string& body = request.exchange->request.body;
    if (request.discarded > 0) {
      request.discarded += data.size();
      return request.discarded > 4 * options_.max_body_bytes ? MHD_NO : MHD_YES;
    }
    if (body.size() + data.size() > options_.max_body_bytes)
      return refuse_body(connection, request);
    body.append(data);
    return MHD_YES;
  }

  /// Answers a request while its body arrives, which the library cannot do. What arrives then is
  /// discarded, because closing the connection would discard the answer.
  MHD_Result refuse_body(MHD_Connection* connection, OpenRequest& request) {
    request.exchange->request.body = {};
    request.exchange->request.is_too_large = true;
    request.discarded = 1;
    handle(request);
    HttpExchange::Head head;
    if (request.exchange->next(head) != HttpExchange::Step::answer) return MHD_NO;
    std::string text = "HTTP/1.1 " + std::to_string(head.status) + " Content Too Large\r\n";
    for (const auto& [name, value] : head.headers) text += name + ": " + value + "\r\n";
    text += "Content-Length: " + std::to_string(head.body.size()) +
            "\r\nConnection: close\r\n\r\n" + head.body;
    const ssize_t sent =
        ::send(socket_of(connection), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent == std::ssize(text) ? MHD_YES : MHD_NO;
  }

  /// Calls the handler, once.
  void handle(OpenRequest& request) {
    if (std::exchange(request.is_handled, true)) return;
    {
      const std::lock_guard lock(mutex_);
      connections_[request.connection].deadline_s =
          request.discarded > 0 ? deadline_of_next_request() : kNever;
    }
    request.exchange->begin();
    HttpReply reply(request.exchange);
    try {
      handler_(request.exchange->request, reply);
    } catch (const std::exception&) {
      reply.send(500, error_json({500, "the request made the server fail"}).dump());
    }
    request.exchange->request.body = {};
  }

  MHD_Result proceed(MHD_Connection* connection, const OpenRequest& request) {
    if (is_stopping_ || is_closed(request.connection)) request.exchange->disconnect();
    HttpExchange::Head head;
    switch (request.exchange->next(head)) {
      case HttpExchange::Step::answer:
        return queue(connection, request.exchange, std::move(head));
      case HttpExchange::Step::wait:
        return MHD_YES;
      case HttpExchange::Step::close:
        break;
    }
    return MHD_NO;
  }

  bool is_closed(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    return connections_[number].is_closed;
  }

  void watch(int descriptor, std::uint64_t number) const {
    epoll_event event{.events = number == 0 ? EPOLLIN : EPOLLRDHUP | EPOLLET,
                      .data = {.u64 = number}};
    ::epoll_ctl(watch_.number(), EPOLL_CTL_ADD, descriptor, &event);
  }

  void run_watcher() {
    std::array<epoll_event, 64> events;
    double next_check_s = 0;
    while (true) {
      const int count = ::epoll_wait(watch_.number(), events.data(), events.size(), 1000);
      for (int i = 0; i < count; ++i) {
        const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
        if (number == 0) return;
        if (const auto exchange = close_direction(number)) exchange->disconnect();
      }
      if (monotonic_seconds() < next_check_s) continue;
      next_check_s = monotonic_seconds() + 1;
      end_late_requests();
    }
  }

  /// Returns the request of a connection whose client sends no more.
  std::shared_ptr<HttpExchange> close_direction(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(number);
    if (found == connections_.end()) return nullptr;
    found->second.is_closed = true;
    // A request that has not arrived completely is the library's.
    return found->second.deadline_s == kNever ? found->second.exchange : nullptr;
  }

  void end_late_requests() {
    const double now_s = monotonic_seconds();
    const std::lock_guard lock(mutex_);  // the descriptor is open as long as the entry exists
    for (auto& [number, one] : connections_)
      if (one.deadline_s < now_s) ::shutdown(one.socket, SHUT_RDWR);
  }

  const HttpOptions options_;
  const HttpHandler handler_;
  const std::int64_t max_connections_;
  const Descriptor listener_;
  const std::int64_t port_;
  const Descriptor watch_, wake_;
  MHD_Daemon* daemon_ = nullptr;
  std::thread watcher_;
  std::atomic<bool> is_stopping_ = false, is_quiet_ = false;
  mutable std::mutex mutex_;  ///< guards what follows
  std::uint64_t last_number_ = 0;
  std::unordered_map<std::uint64_t, Connection> connections_;  ///< by number
};

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler)
    : daemon_(std::make_unique<Daemon>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;
std::int64_t HttpServer::port() const { return daemon_->port(); }
void HttpServer::stop_listening() { daemon_->stop_listening(); }
std::size_t HttpServer::num_open() const { return daemon_->num_open(); }
void HttpServer::stop() { daemon_->stop(); }

const std::string* HttpRequest::header(std::string_view lower_case_name) const {
  const auto found =
      std::ranges::find(headers, lower_case_name, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? nullptr : &found->second;
}

}  // namespace megatron
