// A byte channel whose receiver compares a checksum of each transfer with that of its sender.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/format.h"
#include "megatron/parallel/gloo/byte_channel.h"

namespace megatron {
namespace {

using Bytes = std::span<const std::byte>;
using Checksum = std::uint64_t;

/// Up to this size, data and checksum are one message: a copy costs less than a second message.
constexpr std::size_t kLargestCopy = 64 << 10;
/// Larger data travels in parts, so that each is checked while the next ones are on their way.
constexpr std::size_t kPartBytes = 4 << 20;

std::size_t num_parts(Bytes data) { return (data.size() + kPartBytes - 1) / kPartBytes; }
Bytes part_of(Bytes data, std::size_t index) {
  const Bytes rest = data.subspan(index * kPartBytes);
  return rest.first(std::min(rest.size(), kPartBytes));
}

[[noreturn]] void throw_damaged(std::size_t bytes) {
  throw DamagedTransfer(format("%zu bytes have changed on their way", bytes));
}

/// Data and its checksum in one message.
class SmallSend final : public Transfer {
 public:
  SmallSend(ByteChannel& channel, std::int64_t to, std::uint32_t tag, Bytes data)
      : message_(data.size() + sizeof(Checksum)) {
    std::ranges::copy(data, message_.begin());
    const Checksum sum = checksum(data);
    std::memcpy(message_.data() + data.size(), &sum, sizeof(sum));
    transfer_ = channel.start_send(to, tag, message_.data(), message_.size());
  }
  void wait() override { transfer_->wait(); }

 private:
  std::vector<std::byte> message_;  ///< must outlive the transfer
  std::unique_ptr<Transfer> transfer_;
};

class SmallReceive final : public Transfer {
 public:
  SmallReceive(ByteChannel& channel, std::int64_t from, std::uint32_t tag,
               std::span<std::byte> data)
      : data_(data),
        message_(data.size() + sizeof(Checksum)),
        transfer_(channel.start_receive(from, tag, message_.data(), message_.size())) {}
  void wait() override {
    transfer_->wait();
    Checksum sum = 0;
    std::memcpy(&sum, message_.data() + data_.size(), sizeof(sum));
    const Bytes received = Bytes(message_).first(data_.size());
    if (checksum(received) != sum) throw_damaged(data_.size());
    std::ranges::copy(received, data_.begin());
  }

 private:
  std::span<std::byte> data_;
  std::vector<std::byte> message_;  ///< must outlive the transfer
  std::unique_ptr<Transfer> transfer_;
};

/// Parts of data, and then a message with their checksums.
class LargeSend final : public Transfer {
 public:
  LargeSend(ByteChannel& channel, std::int64_t to, std::uint32_t tag, Bytes data)
      : sums_(num_parts(data)) {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const Bytes part = part_of(data, i);
      transfers_.push_back(channel.start_send(to, tag, part.data(), part.size()));
      sums_[i] = checksum(part);  // while the part is on its way
    }
    transfers_.push_back(
        channel.start_send(to, tag, sums_.data(), sums_.size() * sizeof(Checksum)));
  }
  void wait() override {
    for (const auto& transfer : transfers_) transfer->wait();
  }

 private:
  std::vector<Checksum> sums_;  ///< must outlive the transfers
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

class LargeReceive final : public Transfer {
 public:
  LargeReceive(ByteChannel& channel, std::int64_t from, std::uint32_t tag,
               std::span<std::byte> data)
      : data_(data), sums_(num_parts(data)) {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const std::size_t begin = i * kPartBytes;
      transfers_.push_back(
          channel.start_receive(from, tag, data.data() + begin, part_of(data, i).size()));
    }
    transfers_.push_back(
        channel.start_receive(from, tag, sums_.data(), sums_.size() * sizeof(Checksum)));
  }
  void wait() override {
    std::vector<Checksum> found;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      transfers_[i]->wait();
      found.push_back(checksum(part_of(data_, i)));
    }
    transfers_.back()->wait();
    if (found != sums_) throw_damaged(data_.size());
  }

 private:
  Bytes data_;
  std::vector<Checksum> sums_;  ///< must outlive the transfers
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

class CheckedChannel final : public ByteChannel {
 public:
  explicit CheckedChannel(std::shared_ptr<ByteChannel> channel) : channel_(std::move(channel)) {}
  std::unique_ptr<Transfer> start_send(std::int64_t to, std::uint32_t tag, const void* data,
                                       std::size_t bytes) override {
    const Bytes sent(static_cast<const std::byte*>(data), bytes);
    if (bytes <= kLargestCopy) return std::make_unique<SmallSend>(*channel_, to, tag, sent);
    return std::make_unique<LargeSend>(*channel_, to, tag, sent);
  }
  std::unique_ptr<Transfer> start_receive(std::int64_t from, std::uint32_t tag, void* data,
                                          std::size_t bytes) override {
    const std::span received(static_cast<std::byte*>(data), bytes);
    if (bytes <= kLargestCopy)
      return std::make_unique<SmallReceive>(*channel_, from, tag, received);
    return std::make_unique<LargeReceive>(*channel_, from, tag, received);
  }
  void cancel() override { channel_->cancel(); }

 private:
  std::shared_ptr<ByteChannel> channel_;
};

}  // namespace

std::shared_ptr<ByteChannel> make_checked_channel(std::shared_ptr<ByteChannel> channel) {
  return std::make_shared<CheckedChannel>(std::move(channel));
}

}  // namespace megatron
