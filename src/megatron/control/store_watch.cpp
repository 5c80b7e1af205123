#include "megatron/control/store_watch.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "megatron/control/store_client.h"
#include "megatron/control/store_protocol.h"

namespace megatron {

StoreWatch::StoreWatch(StoreClient& client, std::vector<std::string> keys)
    : keys_(std::move(keys)), values_(keys_.size()) {
  std::string requests = request_of(StoreRequest::frames);
  for (const std::string& key : keys_) requests += request_of(StoreRequest::watch, {key});
  client.send(requests);
  descriptor_ = client.release();
}

void StoreWatch::wait(std::chrono::milliseconds timeout, int wake) {
  std::array<pollfd, 2> events{pollfd{descriptor_.number(), POLLIN, 0}, pollfd{wake, POLLIN, 0}};
  if (::poll(events.data(), events.size(), static_cast<int>(timeout.count())) <= 0) return;
  if (events[0].revents == 0) return;
  std::array<char, 1 << 14> buffer;
  const ssize_t count = ::recv(descriptor_.number(), buffer.data(), buffer.size(), 0);
  if (count == 0) throw StoreLost("the run's store has closed the connection");
  if (count < 0 && errno != EAGAIN && errno != EINTR)
    throw StoreLost(std::string("the connection to the run's store is lost: ") +
                    std::strerror(errno));
  if (count > 0) in_.append(buffer.data(), static_cast<std::size_t>(count));
  take_frames();
}

void StoreWatch::take_frames() {
  try {
    take_messages(in_, [this](RequestReader& reader) {
      const auto kind = static_cast<StoreFrame>(reader.number<std::uint8_t>());
      const std::string key = reader.text();  // or an empty answer
      if (kind != StoreFrame::changed && kind != StoreFrame::missing) return;
      std::optional<std::string> text;
      if (kind == StoreFrame::changed) text = reader.text();
      const auto found = std::ranges::find(keys_, key);
      if (found != keys_.end())
        values_[static_cast<std::size_t>(found - keys_.begin())] = std::move(text);
    });
  } catch (const ProtocolError&) {
    throw StoreLost("the run's store has sent an invalid reply");
  }
}

}  // namespace megatron
