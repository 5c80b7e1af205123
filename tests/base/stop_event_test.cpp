#include "megatron/base/stop_event.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace megatron {
namespace {

class StopEventTest : public ::testing::Test {
 protected:
  StopEventTest() {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    read_ = Descriptor(ends_[0]);
    write_ = Descriptor(ends_[1]);
  }
  std::array<int, 2> ends_{};
  Descriptor read_, write_;
  StopEvent stop_;
};

TEST_F(StopEventTest, WaitsForBytesAndForTheEnd) {
  ASSERT_EQ(::write(write_.number(), "x", 1), 1);
  EXPECT_TRUE(stop_.wait_readable(read_.number()));
  char byte = 0;
  ASSERT_EQ(::read(read_.number(), &byte, 1), 1);
  write_.close();
  EXPECT_TRUE(stop_.wait_readable(read_.number()));
}

TEST_F(StopEventTest, EndsAWaitForBytesThatNeverCome) {
  bool is_readable = true;
  std::thread waiter([&] { is_readable = stop_.wait_readable(read_.number()); });
  stop_.set();
  waiter.join();
  EXPECT_FALSE(is_readable);
  EXPECT_FALSE(stop_.wait_readable(read_.number())) << "also the waits to come";
}

}  // namespace
}  // namespace megatron
