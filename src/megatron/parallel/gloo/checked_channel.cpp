#include "megatron/parallel/gloo/checked_channel.h"

#include <span>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

std::uint64_t checksum_of(const void* data, std::size_t bytes) {
  return checksum(std::span(static_cast<const std::byte*>(data), bytes));
}

/// A transfer of data and of its checksum.
class CheckedTransfer : public Transfer {
 public:
  void wait() override {
    of_data_->wait();
    of_checksum_->wait();
  }

 protected:
  std::uint64_t checksum_ = 0;  ///< must outlive the transfers
  std::unique_ptr<Transfer> of_data_, of_checksum_;
};

class CheckedSend final : public CheckedTransfer {
 public:
  CheckedSend(ByteChannel& channel, std::int64_t to, std::uint32_t tag, const void* data,
              std::size_t bytes) {
    of_data_ = channel.start_send(to, tag, data, bytes);
    checksum_ = checksum_of(data, bytes);  // while the data is on its way
    of_checksum_ = channel.start_send(to, tag, &checksum_, sizeof(checksum_));
  }
};

class CheckedReceive final : public CheckedTransfer {
 public:
  CheckedReceive(ByteChannel& channel, std::int64_t from, std::uint32_t tag, void* data,
                 std::size_t bytes)
      : data_(data), bytes_(bytes) {
    of_data_ = channel.start_receive(from, tag, data, bytes);
    of_checksum_ = channel.start_receive(from, tag, &checksum_, sizeof(checksum_));
  }
  void wait() override {
    CheckedTransfer::wait();
    if (checksum_of(data_, bytes_) != checksum_)
      throw DamagedTransfer(format("%zu bytes have changed on their way", bytes_));
  }

 private:
  const void* data_;
  std::size_t bytes_;
};

class CheckedChannel final : public ByteChannel {
 public:
  explicit CheckedChannel(std::shared_ptr<ByteChannel> channel) : channel_(std::move(channel)) {}
  std::unique_ptr<Transfer> start_send(std::int64_t to, std::uint32_t tag, const void* data,
                                       std::size_t bytes) override {
    return std::make_unique<CheckedSend>(*channel_, to, tag, data, bytes);
  }
  std::unique_ptr<Transfer> start_receive(std::int64_t from, std::uint32_t tag, void* data,
                                          std::size_t bytes) override {
    return std::make_unique<CheckedReceive>(*channel_, from, tag, data, bytes);
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
