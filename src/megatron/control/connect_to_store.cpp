#include "megatron/control/connect_to_store.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/suspend_aware_timer.h"
#include "megatron/control/store_protocol.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kSlowResolverSeconds = 2;  ///< Look-ups that take longer are reported.

/// Returns the time of the next progress line: after 5, 10, 20, 40 seconds, then every minute.
double next_progress_s(double waited_s) {
  return waited_s < 40 ? std::max(5.0, waited_s * 2) : waited_s + 60;
}

/// Connects within a second. On failure returns −1 and puts the text of errno into `reason`.
int connect_to(const addrinfo& address, std::string& reason) {
  const int descriptor = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int code =
      descriptor < 0 || ::connect(descriptor, address.ai_addr, address.ai_addrlen) != 0 ? errno : 0;
  if (code == EINPROGRESS) {
    pollfd event{descriptor, POLLOUT, 0};
    socklen_t length = sizeof code;
    code = ETIMEDOUT;
    if (::poll(&event, 1, 1000) == 1)
      ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length);
  }
  if (code == 0) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  reason = std::strerror(code);
  return -1;
}

class StoreConnector {
 public:
  StoreConnector(const StoreAddress& address, const StoreConnectOptions& options)
      : address_(address), options_(options) {}

  std::shared_ptr<StoreClient> run() {
    for (auto pause = milliseconds(10);; pause = std::min(pause * 2, milliseconds(500))) {
      const int descriptor = connect();
      if (descriptor >= 0) {
        if (!open_since_) open_since_ = Clock::now();
        auto client = std::make_shared<StoreClient>(descriptor, address_, options_.timeout);
        if (is_store(*client) && send_token(*client)) return client;
      } else {
        open_since_.reset();
        const auto now = Clock::now();
        if (now - start_ >= options_.timeout ||
            (unknown_since_ && now - *unknown_since_ >= options_.name_timeout))
          give_up();
      }
      end_if_cancelled();
      report_progress();
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  double waited_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  int connect() {
    const double before_s = waited_s();
    const AddressList list = addresses_of({address_.host, address_.port}, &reason_);
    report_slow_lookup(waited_s() - before_s);
    if (!list) {
      if (!unknown_since_) unknown_since_ = Clock::now();
      return -1;
    }
    unknown_since_.reset();
    for (const addrinfo* one = list.get(); one; one = one->ai_next) {
      if (const int descriptor = connect_to(*one, reason_); descriptor >= 0) return descriptor;
    }
    return -1;
  }

  /// Reports a slow name look-up once.
  void report_slow_lookup(double took_s) {
    if (took_s < kSlowResolverSeconds || was_slow_) return;
    was_slow_ = true;
    report(
        format("looking up the name %s took %.0f s: the resolver is slow (see /etc/resolv.conf), "
               "or give a numeric address",
               address_.host.c_str(), took_s));
  }

  /// Waits for the answer to the handshake. The launcher opens the port before rank 0 serves it.
  bool is_store(StoreClient& client) {
    for (SuspendAwareTimer silence;;) {
      try {
        const auto result = client.handshake(milliseconds(500));
        if (result == StoreClient::HandshakeResult::store) return true;
        if (result == StoreClient::HandshakeResult::foreign)
          refuse("which answered '" + client.foreign_reply() + "'");
        if (result == StoreClient::HandshakeResult::closed) return closed();
      } catch (const StoreLost&) {
        return closed();
      }
      reason_ = "the port is open, but no store of a run answers there: " + address_.owner +
                " is not ready, or another program has the port";
      if (const milliseconds silent = silence.elapsed(); silent >= options_.timeout) {
        throw UserError(
            {"what listens at " + address_.text(),
             format("has not answered for %.0f s: ", static_cast<double>(silent.count()) / 1000) +
                 address_.owner + " of this run is stopped, or another program has the port",
             "look at " + address_.owner +
                 ", or choose a free port with --master-port (MASTER_PORT on every rank)"});
      }
      end_if_cancelled();
      report_progress();
    }
  }

  void end_if_cancelled() const {
    if (options_.is_cancelled && options_.is_cancelled())
      throw StoreLost("a signal ended the wait for " + address_.owner);
  }

  /// Sends the token, or an empty one. Returns false when the store ended meanwhile.
  bool send_token(StoreClient& client) {
    if (!options_.has_tokens) return true;
    std::string answer;
    try {
      answer = client.compare_set(kTokenKey, "", options_.token);
    } catch (const StoreLost&) {
      return closed();
    }
    // A store that asks for none takes the key for one of the run's.
    const bool asks_for_none = answer == options_.token;
    if (answer == kTokenAccepted || (asks_for_none && options_.token.empty())) return true;
    throw UserError({"the store of " + address_.owner + " at " + address_.text(),
                     asks_for_none            ? "asks for no job token, but this rank has one"
                     : options_.token.empty() ? "asks for a job token, but this rank has none"
                                              : "refuses the job token of this rank",
                     "set MEGATRON_JOB_TOKEN to the same text on every rank, or on none"});
  }

  /// Handles a closed connection. Rank 0 may have just ended, a proxy may be in front of a rank 0
  /// that is not up yet, or another service may have rejected the handshake.
  bool closed() {
    reason_ = "the connection was closed";
    if (Clock::now() - *open_since_ >= options_.timeout) refuse("which closes every connection");
    return false;
  }

  [[noreturn]] void refuse(const std::string& how) const {
    throw UserError({"what listens at " + address_.text(),
                     "is another service, not " + address_.owner + " of this run (" + how + ")",
                     "choose a free port with --master-port, or with MASTER_PORT on every rank"});
  }

  [[noreturn]] void give_up() const {
    if (unknown_since_)
      throw UserError(
          {"the host of " + address_.owner + ", " + address_.host,
           "its name is not known here (" + reason_ + ")",
           "set MASTER_ADDR (--master-addr) to a name or address that every host can resolve"});
    throw UserError({address_.owner + " at " + address_.text(),
                     format("does not answer after %.0f s (%s)", waited_s(), reason_.c_str()),
                     "start " + address_.owner +
                         ", and check that MASTER_ADDR and MASTER_PORT name its host and a port "
                         "that firewalls let through" +
                         (is_loopback(address_.host)
                              ? "; other hosts need another --master-addr than " + address_.host
                              : "")});
  }

  void report(const std::string& reason) const {
    if (options_.progress) options_.progress(waited_s(), reason);
  }

  void report_progress() {
    if (waited_s() < next_report_s_) return;
    report(reason_);
    next_report_s_ = next_progress_s(waited_s());
  }

  const StoreAddress& address_;
  const StoreConnectOptions& options_;
  const Clock::time_point start_ = Clock::now();
  double next_report_s_ = next_progress_s(0);
  std::string reason_;
  bool was_slow_ = false;
  std::optional<Clock::time_point> unknown_since_;  ///< Since then no look-up has found the name.
  std::optional<Clock::time_point> open_since_;     ///< Since then the port has been open.
};

}  // namespace

std::shared_ptr<StoreClient> connect_to_store(const StoreAddress& address,
                                              const StoreConnectOptions& options) {
  return StoreConnector(address, options).run();
}

}  // namespace megatron
