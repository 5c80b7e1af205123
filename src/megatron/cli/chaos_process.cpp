#include "megatron/cli/chaos_process.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "megatron/base/descriptor.h"
#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/cli/published_weights.h"

namespace megatron {
namespace {

/// A connection of a process: a duplicate of its socket, and the addresses of both ends.
struct Connection {
  Descriptor socket;
  std::string own, peer;
};

/// A process may have ended meanwhile, and a descriptor been closed.
void refuse_unless_gone(const std::string& action) {
  if (errno == ESRCH || errno == EBADF || errno == ENOENT || errno == EFAULT) return;
  throw UserError({"chaos cannot " + action, std::strerror(errno),
                   "allow it to trace the processes that it started (kernel.yama.ptrace_scope 0 or "
                   "1, and no seccomp filter against pidfd_getfd and process_vm_writev), or leave "
                   "the kind out of --kinds"});
}

std::optional<Connection> connection_of(const Descriptor& process, int number) {
  Descriptor copy(static_cast<int>(::syscall(SYS_pidfd_getfd, process.number(), number, 0)));
  if (copy.number() < 0) {
    refuse_unless_gone("take a rank's connection");
    return std::nullopt;
  }
  const Endpoint own = local_endpoint(copy.number()), peer = peer_endpoint(copy.number());
  int type = 0;
  socklen_t type_size = sizeof(type);
  if (::getsockopt(copy.number(), SOL_SOCKET, SO_TYPE, &type, &type_size) != 0 ||
      type != SOCK_STREAM || own.host.empty() || peer.host.empty())
    return std::nullopt;
  return Connection{std::move(copy), own.text(), peer.text()};
}

/// Returns the TCP connections of a process in order of their descriptors.
std::vector<Connection> connections_of(pid_t process) {
  std::vector<Connection> connections;
  const Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (handle.number() < 0) {
    refuse_unless_gone("open a rank");
    return connections;
  }
  const fs::path folder = "/proc/" + std::to_string(process) + "/fd";
  std::error_code error;
  std::set<int> sockets;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (fs::read_symlink(entry.path(), error).string().starts_with("socket:"))
      sockets.insert(std::atoi(entry.path().filename().c_str()));
  }
  for (const int number : sockets)
    if (auto connection = connection_of(handle, number))
      connections.push_back(std::move(*connection));
  return connections;
}

/// Returns a duplicate of a socket of `victim` whose other end is in another process.
std::optional<Connection> choose_link(pid_t victim, const std::vector<pid_t>& processes,
                                      std::uint64_t choice) {
  std::set<std::pair<std::string, std::string>> others;
  for (const pid_t process : processes) {
    if (process == victim) continue;
    for (const Connection& connection : connections_of(process))
      others.emplace(connection.peer, connection.own);
  }
  std::vector<Connection> links = connections_of(victim);
  std::erase_if(links, [&](const Connection& connection) {
    return !others.contains({connection.own, connection.peer});
  });
  if (links.empty()) return std::nullopt;
  return std::move(links[choice % links.size()]);
}

}  // namespace

void RankProcesses::update(const std::vector<pid_t>& children) {
  is_complete_ = children.size() == by_rank_.size();
  if (!is_complete_) return;
  for (pid_t& process : by_rank_)
    if (std::ranges::count(children, process) == 0) process = 0;
  auto vacant = by_rank_.begin();
  for (const pid_t child : children) {
    if (std::ranges::count(by_rank_, child) > 0) continue;
    vacant = std::find(vacant, by_rank_.end(), 0);
    *vacant = child;
  }
}

bool drop_link(pid_t victim, const std::vector<pid_t>& processes, std::uint64_t choice) {
  const auto link = choose_link(victim, processes, choice);
  return link && ::shutdown(link->socket.number(), SHUT_RDWR) == 0;
}

bool corrupt_link(pid_t victim, const std::vector<pid_t>& processes, std::uint64_t choice) {
  const auto link = choose_link(victim, processes, choice);
  if (!link) return false;
  std::array<std::uint64_t, 8> noise{};
  for (std::uint64_t i = 0; i < noise.size(); ++i)
    noise[i] = (choice + i + 1) * 0x9E3779B97F4A7C15u;
  return ::send(link->socket.number(), noise.data(), sizeof(noise), MSG_DONTWAIT | MSG_NOSIGNAL) >
         0;
}

bool flip_bit(pid_t victim, const std::filesystem::path& published, std::uint64_t choice) {
  const auto weights = published_weights(published, victim);
  if (!weights) return false;
  std::uint32_t bits = 0;
  const iovec here{&bits, sizeof(bits)};
  const std::uint64_t place = weights->address + sizeof(bits) * ((choice >> 8) % weights->count);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process.
  const iovec there{reinterpret_cast<void*>(place), sizeof(bits)};
  const auto moved = [&](ssize_t bytes) {
    if (bytes == sizeof(bits)) return true;
    refuse_unless_gone("change a rank's memory");
    return false;
  };
  if (!moved(::process_vm_readv(victim, &here, 1, &there, 1, 0))) return false;
  bits ^= 1U << (16 + choice % 12);
  return moved(::process_vm_writev(victim, &here, 1, &there, 1, 0));
}

}  // namespace megatron
