// How a failure of the channel below a group of ranks on several hosts is reported.
#include "megatron/parallel/gloo/message_transport.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "megatron/parallel/shared_memory/shared_memory.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CalledTransfer final : public Transfer {
 public:
  explicit CalledTransfer(std::function<void()> body) : body_(std::move(body)) {}
  void wait() override { body_(); }

 private:
  std::function<void()> body_;
};

/// A channel on which everything that arrives is damaged.
class DamagingChannel final : public ByteChannel {
 public:
  std::unique_ptr<Transfer> start_send(std::int64_t, std::uint32_t, const void*,
                                       std::size_t) override {
    return std::make_unique<CalledTransfer>([] {});
  }
  std::unique_ptr<Transfer> start_receive(std::int64_t, std::uint32_t, void*,
                                          std::size_t bytes) override {
    return std::make_unique<CalledTransfer>([bytes] {
      throw DamagedTransfer(std::to_string(bytes) + " bytes have changed on their way");
    });
  }
  void cancel() override {}
};

std::string failure_of(const CommCall& call) {
  constexpr std::int64_t kRanks = 10;
  const auto host_status =
      std::make_shared<HostStatus>(SharedMemory::for_threads(HostStatus::bytes(kRanks)), kRanks);
  MessageTransport transport(std::make_shared<DamagingChannel>(), {0, 1},
                             {.name = "dp", .ranks = {4, 9}, .rank = 0}, host_status);
  try {
    transport.run(call);
  } catch (const CommError& error) {
    return error.what();
  }
  return "no failure";
}

TEST(MessageTransport, NamesTheRankWhoseDataIsDamaged) {
  const at::Tensor tensor = at::ones({3});
  const CommCall reduce{.operation = CommOperation::all_reduce,
                        .out = tensor,
                        .in = tensor,
                        .what = "gradients",
                        .axis = "dp"};
  EXPECT_THAT(failure_of(reduce), AllOf(HasSubstr("all_reduce 'gradients' on dp"),
                                        HasSubstr("data from rank 9 is damaged"),
                                        HasSubstr("bytes have changed on their way")));
  const CommCall receive{.operation = CommOperation::recv,
                         .out = tensor,
                         .what = "activations",
                         .peer = 1,
                         .axis = "dp"};
  EXPECT_THAT(failure_of(receive), AllOf(HasSubstr("recv 'activations' on dp"),
                                         HasSubstr("data from rank 9 is damaged")));
}

}  // namespace
}  // namespace megatron
