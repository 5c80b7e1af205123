#include "megatron/control/store_protocol.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace megatron {

std::optional<std::pair<std::string, std::string>> read_compare_set_of(std::string_view key,
                                                                       RequestReader& reader) {
  RequestReader ahead = reader;
  if (ahead.text() != key) return std::nullopt;
  std::string expected = ahead.text(), value = ahead.text();
  reader = ahead;
  return std::pair(std::move(expected), std::move(value));
}

void detect_silent_host(int descriptor) {
  const int on = 1, idle_s = 10, interval_s = 5,
            probes = (kSilentHostSeconds - idle_s) / interval_s,
            limit_ms = kSilentHostSeconds * 1000;
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  // Keepalive probes are not sent while data waits for an acknowledgement; this limit holds then.
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

}  // namespace megatron
