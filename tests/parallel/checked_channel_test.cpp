// Tests that a receiver notices what a channel changes.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <functional>
#include <vector>

#include "megatron/parallel/gloo/byte_channel.h"

namespace megatron {
namespace {

using Bytes = std::vector<std::byte>;

class DoneTransfer final : public Transfer {
 public:
  void wait() override {}
};

/// A channel to oneself. `damage` may change a message on its way.
class Loopback final : public ByteChannel {
 public:
  std::unique_ptr<Transfer> start_send(std::int64_t, std::uint32_t, const void* data,
                                       std::size_t bytes) override {
    const auto* begin = static_cast<const std::byte*>(data);
    messages_.emplace_back(begin, begin + bytes);
    if (damage) damage(messages_.back());
    return std::make_unique<DoneTransfer>();
  }
  std::unique_ptr<Transfer> start_receive(std::int64_t, std::uint32_t, void* data,
                                          std::size_t bytes) override {
    EXPECT_EQ(messages_.front().size(), bytes);
    std::memcpy(data, messages_.front().data(), bytes);
    messages_.pop_front();
    return std::make_unique<DoneTransfer>();
  }
  void cancel() override {}

  std::function<void(Bytes&)> damage;

 private:
  std::deque<Bytes> messages_;
};

constexpr std::size_t kSmall = 5'000;      ///< one message
constexpr std::size_t kLarge = 9'000'000;  ///< parts of 4 MiB, and a message with their checksums

/// Sends bytes and returns those that arrive.
Bytes sent_over(const std::shared_ptr<Loopback>& loopback, std::size_t bytes) {
  const auto channel = make_checked_channel(loopback);
  Bytes out(bytes, std::byte{7}), in(bytes);
  const auto send = channel->start_send(0, 1, out.data(), out.size());
  const auto receive = channel->start_receive(0, 1, in.data(), in.size());
  send->wait();
  receive->wait();
  return in;
}

TEST(CheckedChannel, DeliversWhatWasSent) {
  for (const std::size_t bytes : {std::size_t{1}, kSmall, std::size_t{64 << 10},
                                  std::size_t{(64 << 10) + 1}, std::size_t{8 << 20}, kLarge})
    EXPECT_EQ(sent_over(std::make_shared<Loopback>(), bytes), Bytes(bytes, std::byte{7})) << bytes;
}

TEST(CheckedChannel, NoticesOneBitAnywhereInASmallMessage) {
  for (const std::size_t place : {std::size_t{0}, std::size_t{1'234}, kSmall - 1, kSmall + 3}) {
    const auto loopback = std::make_shared<Loopback>();
    loopback->damage = [place](Bytes& message) { message.at(place) ^= std::byte{16}; };
    EXPECT_THROW(sent_over(loopback, kSmall), DamagedTransfer) << place;
  }
}

TEST(CheckedChannel, NoticesOneBitInEveryMessageOfALargeTransfer) {
  for (int damaged = 0; damaged < 4; ++damaged) {
    const auto loopback = std::make_shared<Loopback>();
    loopback->damage = [damaged, message_number = 0](Bytes& message) mutable {
      if (message_number++ == damaged) message.back() ^= std::byte{1};
    };
    EXPECT_THROW(sent_over(loopback, kLarge), DamagedTransfer) << damaged;
  }
}

}  // namespace
}  // namespace megatron
