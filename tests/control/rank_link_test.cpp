// A launcher and a rank's process that may take part in several rounds.
#include "megatron/control/rank_link.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <future>

namespace megatron {
namespace {

/// Waits for an offer, or for the end of the process.
std::optional<int> awaited_code(RankLink& launcher) {
  pollfd event{launcher.descriptor(), POLLIN, 0};
  ::poll(&event, 1, 10'000);
  return launcher.offered_code();
}

TEST(RankLink, AProcessGetsTheVariablesOfTheNextStart) {
  auto [launcher, end] = RankLink::open();
  EXPECT_EQ(launcher.offered_code(), std::nullopt) << "nothing is offered yet";
  EXPECT_TRUE(launcher.is_open());
  for (const int code : {137, 1}) {
    auto offer = std::async(std::launch::async, [&] { return offer_process(end.number(), code); });
    EXPECT_EQ(awaited_code(launcher), code);
    const Variables next{{"RANK", std::to_string(code)}, {"EMPTY", ""}, {"TEXT", "a=b c"}};
    EXPECT_TRUE(launcher.start_again(next));
    EXPECT_EQ(offer.get(), next);
  }
}

TEST(RankLink, ADeclinedProcessEnds) {
  auto [launcher, end] = RankLink::open();
  auto offer = std::async(std::launch::async, [&] { return offer_process(end.number(), 1); });
  EXPECT_EQ(awaited_code(launcher), 1);
  launcher.close();
  EXPECT_EQ(offer.get(), std::nullopt);
  EXPECT_EQ(offer_process(end.number(), 1), std::nullopt) << "nobody is there any more";
}

TEST(RankLink, AProcessThatHasEndedIsNotStarted) {
  auto [launcher, end] = RankLink::open();
  end.close();
  EXPECT_EQ(awaited_code(launcher), std::nullopt);
  EXPECT_FALSE(launcher.is_open());
  EXPECT_FALSE(launcher.start_again({{"RANK", "1"}}));
}

}  // namespace
}  // namespace megatron
