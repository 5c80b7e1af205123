#include "megatron/control/store_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "megatron/base/descriptor.h"

namespace megatron {
namespace {

/// A process that is stopped until the test ends.
class StoppedProcess {
 public:
  StoppedProcess() : id_(::fork()) {
    if (id_ == 0) {
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    ::waitpid(id_, nullptr, WUNTRACED);
  }
  ~StoppedProcess() {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  pid_t id() const { return id_; }

 private:
  pid_t id_;
};

/// Returns what a client says of a store that does not answer.
std::string silence_of(pid_t relay) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Descriptor store(ends[1]);
  StoreClient client(ends[0],
                     {.host = "node1", .port = 7, .owner = "the first launcher", .relay = relay},
                     std::chrono::milliseconds(200));
  try {
    client.add("key", 1);
  } catch (const StoreLost& error) {
    return error.what();
  }
  return "no error";
}

TEST(StoreClient, NamesWhoIsSilent) {
  const StoppedProcess stopped;
  EXPECT_THAT(
      silence_of(stopped.id()),
      testing::ContainsRegex("the launcher of .*, which connects it to the run's store, has "
                             "not answered for 0.2 s: it is stopped \\(process " +
                             std::to_string(stopped.id())));
  for (const pid_t alive : {pid_t{0}, ::getpid()})
    EXPECT_EQ(silence_of(alive),
              "the first launcher, which hosts the run's store at node1:7, has not answered for "
              "0.2 s: its process is stopped, or the network is cut");
}

}  // namespace
}  // namespace megatron
