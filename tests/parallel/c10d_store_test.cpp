// The run's store and c10d's understand each other.
#include "megatron/parallel/rendezvous/c10d_store.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "megatron/control/connect_to_store.h"
#include "support/check_store.h"

namespace {
std::atomic<int> num_names_asked{0};
}

/// Replaces the C library's function and counts the queries that would go to a resolver.
extern "C" int getnameinfo(const sockaddr* address, socklen_t length, char* host,
                           socklen_t host_size, char* service, socklen_t service_size, int flags) {
  static const auto real =
      reinterpret_cast<decltype(&getnameinfo)>(::dlsym(RTLD_NEXT, "getnameinfo"));
  if ((flags & NI_NUMERICHOST) == 0) ++num_names_asked;
  return real(address, length, host, host_size, service, service_size, flags);
}

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// torchrun's agent hosts c10d's own store.
TEST(RunStore, SpeaksWithAStoreOfC10d) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  const c10d::TCPStore agent("127.0.0.1", options);
  check_calls(RunStore(
      connect_to_store({"127.0.0.1", agent.getPort()}, {.timeout = milliseconds(10'000)})));
}

/// Gloo and NCCL see the keys below a prefix. NCCL looks for a PrefixStore.
TEST(RunStore, IsAStoreOfC10dToLibraries) {
  using Bytes = std::vector<std::uint8_t>;
  RunStore run = RunStore::host(local_socket(), milliseconds(10'000)).with_prefix("run");
  const auto store = make_c10d_store(run, "group/gloo");
  ASSERT_NE(dynamic_cast<c10d::PrefixStore*>(store.get()), nullptr);
  store->set("a", Bytes{'1', '\0'});
  EXPECT_EQ(run.find("group/gloo/a"), std::string("1\0", 2));
  EXPECT_EQ(store->compareSet("b", Bytes{}, Bytes{'2'}), Bytes{'2'});
  run.set("group/gloo/c", "3");
  EXPECT_EQ(store->get("c"), Bytes{'3'});
  EXPECT_EQ(store->add("sum", 4), 4);
  EXPECT_TRUE(store->check({"a", "b", "c"}));
  EXPECT_FALSE(store->check({"d"}));
  EXPECT_TRUE(store->deleteKey("a"));
  EXPECT_THROW(store->wait({"a"}, milliseconds(30)), c10::DistStoreError);
}

/// c10d's own server resolves the name of every client, which takes seconds per connection when the
/// resolver does not answer.
TEST(RunStore, AsksNobodyForNames) {
  const int before = num_names_asked;
  check_calls(RunStore::host(local_socket(), milliseconds(10'000)));
  EXPECT_EQ(num_names_asked, before);
  c10d::TCPStoreOptions options;
  options.isServer = true;
  const c10d::TCPStore other("127.0.0.1", options);
  EXPECT_GT(num_names_asked, before) << "the count sees nothing";
}

}  // namespace
}  // namespace megatron
