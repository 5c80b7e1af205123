// The history of calls, as its own rank and other processes see it.
#include "megatron/parallel/failure/call_history.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/rank_threads.h"
#include "support/rank_numbers.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

CommCall all_reduce_call(const at::Tensor& tensor, const char* what) {
  return {.operation = CommOperation::all_reduce,
          .out = tensor,
          .in = tensor,
          .what = what,
          .axis = "dp"};
}

class CallHistoryTest : public testing::Test {
 protected:
  std::shared_ptr<SharedMemory> memory_ = SharedMemory::for_threads(CallHistory::bytes(2));
  CallHistory history_{memory_->data()};
};

TEST_F(CallHistoryTest, KeepsWhatWasCalled) {
  const std::uint64_t group = history_.add_group("dp", {0, 1, 5});
  CommCall call = all_reduce_call(at::zeros({3, 4}), "gradients");
  call.layer = std::make_shared<const std::string>("decoder.layers.7");
  const std::uint64_t number =
      history_.enter({.rank = 1, .group = group, .group_number = 9, .peer = -1}, call);
  const CallRecord entered = history_.read(1).at(0);
  EXPECT_EQ(entered.number, 1U);
  EXPECT_EQ(entered.group_number, 9U);
  EXPECT_EQ(entered.operation, CommOperation::all_reduce);
  EXPECT_EQ(entered.what, "gradients");
  EXPECT_EQ(entered.axis, "dp");
  EXPECT_EQ(entered.layer, "decoder.layers.7");
  EXPECT_EQ(entered.type, "Float");
  EXPECT_THAT(entered.shape, ElementsAre(3, 4));
  EXPECT_GT(entered.entered_s, 1.6e9);
  EXPECT_EQ(entered.left_s, 0);
  EXPECT_THAT(history_.groups().at(entered.group).ranks, ElementsAre(0, 1, 5));
  history_.leave(1, number);
  EXPECT_GE(history_.read(1).at(0).left_s, entered.entered_s);
  EXPECT_THAT(history_.read(0), IsEmpty());
}

TEST_F(CallHistoryTest, KeepsTheLastCallsOnly) {
  const std::uint64_t total = CallHistory::kNumCalls + 10;
  const CommCall call = all_reduce_call(at::zeros({1}), "x");
  std::uint64_t first = 0;
  for (std::uint64_t i = 1; i <= total; ++i) {
    const std::uint64_t number = history_.enter({.rank = 0, .group_number = i}, call);
    if (i == 1) first = number;
  }
  history_.leave(0, first);  // forgotten: its place belongs to another call
  const std::vector<CallRecord> calls = history_.read(0);
  ASSERT_THAT(calls, SizeIs(CallHistory::kNumCalls));
  EXPECT_EQ(calls.front().number, 11U);
  EXPECT_EQ(calls.back().number, total);
  for (const CallRecord& record : calls) EXPECT_EQ(record.left_s, 0) << record.number;
}

TEST_F(CallHistoryTest, CutsLongNames) {
  const std::string name(300, 'x');
  history_.enter({.rank = 0}, all_reduce_call(at::zeros({1, 1, 1, 1, 1, 1, 1, 2}), name.c_str()));
  const CallRecord record = history_.read(0).at(0);
  EXPECT_EQ(record.what, name.substr(0, 55));
  EXPECT_THAT(record.shape, ElementsAre(1, 1, 1, 1, 1, 1));
}

CallRecord message(CommOperation operation, std::int64_t peer, std::uint64_t number) {
  return {.group = "g", .group_number = number, .operation = operation, .peer = peer};
}

TEST(CallRecord, AMessageHasItsPartAtThePartner) {
  const CallRecord receive = message(CommOperation::recv, 1, 4);  // of rank 0
  EXPECT_TRUE(is_part_of(message(CommOperation::send, 0, 4), receive, 0));
  EXPECT_TRUE(is_part_of(message(CommOperation::send, 0, 5), receive, 0)) << "a later one";
  EXPECT_FALSE(is_part_of(message(CommOperation::send, 0, 3), receive, 0));
  EXPECT_FALSE(is_part_of(message(CommOperation::send, 2, 4), receive, 0)) << "to another rank";
  EXPECT_FALSE(is_part_of(message(CommOperation::recv, 0, 4), receive, 0)) << "both receive";
  EXPECT_FALSE(is_part_of(message(CommOperation::barrier, -1, 4), receive, 0));
}

/// Collectives are numbered by group and messages by partner, alike on all ranks.
TEST(CallHistory, NumbersCallsAlikeOnAllRanks) {
  run_rank_threads(2, [](Communicators& world) {
    const auto comm = world.group(first_ranks(2), "dp");
    const at::Tensor x = at::ones({4});
    comm->all_reduce(x, "first");
    {
      const LayerScope scope(std::make_shared<const std::string>("decoder.layers.2"));
      comm->start_all_reduce(x, "second")->wait();
    }
    world.rank() == 0 ? comm->send(x, 1, "message") : comm->recv(x, 0, "message");
    comm->barrier("end");
    const auto status = std::static_pointer_cast<HostStatus>(world.failure_notice());
    const std::vector<CallRecord> calls = status->history().read(world.rank());
    ASSERT_THAT(calls, SizeIs(4));
    EXPECT_EQ(calls[0].group_number, 1U);
    EXPECT_EQ(calls[0].layer, "");
    EXPECT_EQ(calls[1].group_number, 2U);
    EXPECT_EQ(calls[1].layer, "decoder.layers.2");
    EXPECT_EQ(calls[2].group_number, 1U) << "the first message of the pair";
    EXPECT_EQ(calls[2].peer, 1 - world.rank());
    EXPECT_EQ(calls[3].group_number, 3U);
    EXPECT_EQ(calls[3].peer, -1);
    for (const CallRecord& call : calls) EXPECT_GT(call.left_s, 0) << call.what;
  });
}

}  // namespace
}  // namespace megatron
