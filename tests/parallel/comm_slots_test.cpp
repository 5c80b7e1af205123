// Slots outlive the groups that carry their calls.
#include "megatron/parallel/comm_slots.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// A group that remembers the names under which it was called.
class RecordingComm final : public Comm {
 public:
  RecordingComm(std::int64_t rank, std::vector<std::int64_t> ranks)
      : rank_(rank), ranks_(std::move(ranks)) {}
  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(ranks_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<std::int64_t>& ranks() const override { return ranks_; }
  std::vector<std::string> axes = {};

 protected:
  PendingWork start(CommCall call) override {
    axes.push_back(call.axis);
    return nullptr;
  }
  void run(CommCall call) override { axes.push_back(call.axis); }

 private:
  std::int64_t rank_;
  std::vector<std::int64_t> ranks_;
  std::string name_ = "recorded";
};

TEST(CommSlots, CallsGoToTheLatestGroupUnderTheNameOfTheAxis) {
  CommSlots slots;
  const auto first = std::make_shared<RecordingComm>(1, std::vector<std::int64_t>{2, 5}),
             second = std::make_shared<RecordingComm>(1, std::vector<std::int64_t>{2, 5});
  const auto tp = slots.connect("tp", first), dp = slots.connect("dp", first);
  EXPECT_NE(tp, dp);
  tp->barrier("a");
  dp->barrier("b");
  EXPECT_EQ(first->axes, (std::vector<std::string>{"tp", "dp"}));
  EXPECT_EQ(slots.connect("tp", second), tp) << "a model holds it";
  tp->barrier("c");
  dp->barrier("d");
  EXPECT_EQ(second->axes, std::vector<std::string>{"tp"});
  EXPECT_EQ(first->axes, (std::vector<std::string>{"tp", "dp", "dp"}));
  EXPECT_EQ(tp->rank(), 1);
  EXPECT_EQ(tp->ranks(), (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(tp->name(), "tp");
}

TEST(CommSlots, OtherRanksHaveAnotherSlot) {
  CommSlots slots;
  const auto pair =
      slots.connect("dp", std::make_shared<RecordingComm>(0, std::vector<std::int64_t>{0, 1}));
  const auto three =
      slots.connect("dp", std::make_shared<RecordingComm>(0, std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_NE(pair, three);
  EXPECT_EQ(pair->size(), 2);
  EXPECT_EQ(three->size(), 3);
}

/// A spare host may take the place of a lost one in front, so that the ranks of the others move up.
TEST(CommSlots, ARankMayChangeItsPlace) {
  CommSlots slots;
  const std::vector<std::int64_t> ranks{0, 1, 2};
  const auto before = slots.connect("dp", std::make_shared<RecordingComm>(2, ranks));
  slots.disconnect();
  const auto after = slots.connect("dp", std::make_shared<RecordingComm>(1, ranks));
  EXPECT_EQ(before->rank(), 2);
  EXPECT_EQ(after->rank(), 1);
}

TEST(CommSlots, CountersBeginAnew) {
  CommSlots slots;
  slots.counters()->add_call("dp", "all_reduce", "gradients", 8);
  slots.counters()->activities().switch_on(true);
  slots.counters()->activities().add(CommWait{.axis = "dp"});
  slots.disconnect();
  EXPECT_TRUE(slots.counters()->take().empty());
  EXPECT_FALSE(slots.counters()->activities().is_on());
  EXPECT_TRUE(slots.counters()->activities().take().waits.empty());
}

TEST(CommSlots, DisconnectedSlotsLetGoOfTheirGroups) {
  CommSlots slots;
  auto group = std::make_shared<RecordingComm>(0, std::vector<std::int64_t>{0, 1});
  const std::weak_ptr<RecordingComm> watched = group;
  const auto tp = slots.connect("tp", std::move(group));
  slots.disconnect();
  EXPECT_TRUE(watched.expired());
  EXPECT_THROW(tp->barrier("between two starts"), InternalError);
  EXPECT_EQ(tp->size(), 2);
}

TEST(CommSlots, DisconnectingForgetsSlotsThatNobodyHolds) {
  CommSlots slots;
  const std::weak_ptr<Comm> unused =
      slots.connect("tp", std::make_shared<RecordingComm>(0, std::vector<std::int64_t>{0, 1}));
  EXPECT_FALSE(unused.expired());
  slots.disconnect();
  EXPECT_TRUE(unused.expired());
}

}  // namespace
}  // namespace megatron
