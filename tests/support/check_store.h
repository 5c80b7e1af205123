// The calls of a run's store that every store must answer alike.
#pragma once

#include <gtest/gtest.h>

#include "megatron/control/run_store.h"

namespace megatron {

inline ListeningSocket local_socket() {
  return ListeningSocket({.port = 0, .loopback_only = true});
}

inline void check_calls(RunStore store) {
  EXPECT_EQ(store.find("a"), std::nullopt);
  store.set("a", "1");
  EXPECT_EQ(store.find("a"), "1");
  EXPECT_EQ(store.with_prefix("other").find("a"), std::nullopt);
  EXPECT_EQ(store.compare_set("a", "2", "3"), "1");
  EXPECT_EQ(store.compare_set("a", "1", "3"), "3");
  EXPECT_EQ(store.compare_set("b", "", "4"), "4");
  EXPECT_EQ(store.add("count", 2), 2);
  EXPECT_EQ(store.add("count", -5), -3);
  EXPECT_EQ(store.get_all({"a", "b"}), (std::vector<std::string>{"3", "4"}));
  EXPECT_TRUE(store.has_all({"a", "b"}));
  EXPECT_FALSE(store.has_all({"a", "c"}));
  EXPECT_FALSE(store.poll("c", std::chrono::milliseconds(30)));
  EXPECT_TRUE(store.remove("a"));
  EXPECT_FALSE(store.remove("a"));
  const std::string large(3'000'000, 'x');
  store.set("large", large);
  EXPECT_EQ(store.find("large"), large);
}

}  // namespace megatron
