#include "megatron/control/rank_link.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// More than the variables of a start take.
constexpr std::size_t kMaxPacketBytes = 1 << 16;

}  // namespace

std::pair<RankLink, Descriptor> RankLink::open() {
  std::array<int, 2> ends{};
  // Packets: one for each offer, and one for each start.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw UserError({"cannot open a connection to a rank", std::strerror(errno),
                     "start fewer ranks, or raise the limits of this user (ulimit -a)"});
  return {RankLink(ends[0]), Descriptor(ends[1])};
}

std::optional<int> RankLink::offered_code() {
  int code = 0;
  const ssize_t count = ::recv(end_.number(), &code, sizeof code, MSG_DONTWAIT);
  if (count == sizeof code) return code;
  if (count >= 0) close();  // the process has ended; waitpid() reports how
  return std::nullopt;
}

bool RankLink::start_again(const Variables& variables) {
  std::string packet;
  for (const auto& [name, value] : variables)
    packet.append(name).append(1, '=').append(value).append(1, '\0');
  MEGATRON_CHECK(packet.size() <= kMaxPacketBytes, "variables of ", packet.size(), " bytes");
  return ::send(end_.number(), packet.data(), packet.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(packet.size());
}

std::optional<Variables> offer_process(int link, int code) {
  if (::send(link, &code, sizeof code, MSG_NOSIGNAL) != sizeof code) return std::nullopt;
  std::string packet(kMaxPacketBytes, '\0');
  ssize_t count = 0;
  do {
    count = ::recv(link, packet.data(), packet.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return std::nullopt;
  Variables variables;
  std::string_view left(packet.data(), static_cast<std::size_t>(count));
  for (std::size_t end; (end = left.find('\0')) != std::string_view::npos;
       left.remove_prefix(end + 1)) {
    const std::string_view one = left.substr(0, end);
    const std::size_t equals = one.find('=');
    if (equals != std::string_view::npos)
      variables.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  return variables;
}

}  // namespace megatron
