#include "megatron/control/store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <utility>

#include "megatron/base/descriptor.h"
#include "megatron/base/error.h"
#include "megatron/control/store_service.h"

namespace megatron {

class StoreServer::Loop {
 public:
  Loop(ListeningSocket socket, std::string token)
      : service_(std::move(socket), std::move(token)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    MEGATRON_CHECK(wake_.is_open(), "cannot make an eventfd for the run's store");
    thread_ = std::thread([this] { run(); });
  }
  ~Loop() {
    const std::uint64_t one = 1;
    const ssize_t written = ::write(wake_.number(), &one, sizeof one);
    MEGATRON_CHECK(written == sizeof one, "cannot wake the thread of the run's store");
    thread_.join();
  }

 private:
  void run() {
    std::array<pollfd, 2> events{{{wake_.number(), POLLIN, 0}, {service_.descriptor(), POLLIN, 0}}};
    while (true) {
      if (::poll(events.data(), events.size(), -1) <= 0) continue;
      if (events[0].revents != 0) return;
      service_.serve();
    }
  }

  StoreService service_;
  Descriptor wake_;
  std::thread thread_;
};

StoreServer::StoreServer(ListeningSocket socket, std::string token)
    : loop_(std::make_unique<Loop>(std::move(socket), std::move(token))) {}
StoreServer::~StoreServer() = default;

}  // namespace megatron
