// Faults done to connections and to memory of other processes.
#include "megatron/cli/chaos_process.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/cli/published_weights.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

/// A child process that runs a function and exits with its result.
class Child {
 public:
  explicit Child(const std::function<int()>& body) {
    pid_ = ::fork();
    if (pid_ == 0) ::_exit(body());
  }
  ~Child() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
};

/// A TCP connection over loopback. The ends are closed when the children have theirs.
struct TcpPair {
  TcpPair() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    one = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(one, reinterpret_cast<sockaddr*>(&address), size), 0);
    other = ::accept(listener, nullptr, nullptr);
    ::close(listener);
  }
  void close() const { ::close(one), ::close(other); }
  int one = -1, other = -1;
};

/// Says that a child has only its own end, and waits until all have said so.
class Start {
 public:
  Start() { EXPECT_EQ(::pipe(ends_), 0); }
  void say() const { EXPECT_EQ(::write(ends_[1], "", 1), 1); }
  void wait_for(int children) const {
    for (char byte = 0; children > 0; --children) ASSERT_EQ(::read(ends_[0], &byte, 1), 1);
  }

 private:
  int ends_[2];
};

/// Closes the other end, reads once and returns the number of bytes.
int bytes_read(const Start& start, int socket, int other) {
  ::close(other);
  start.say();
  char buffer[256];
  return static_cast<int>(::read(socket, buffer, sizeof(buffer)));
}

/// Two processes that read once from the ends of a connection.
struct Readers {
  Readers() {
    pair.close();
    start.wait_for(2);
  }
  const TcpPair pair;
  const Start start;
  Child one{[this] { return bytes_read(start, pair.one, pair.other); }},
      other{[this] { return bytes_read(start, pair.other, pair.one); }};
};

using testing::ElementsAre;
using testing::IsEmpty;

TEST(RankProcesses, AreInOrderOfRankAfterOneWasReplaced) {
  RankProcesses ranks(3);
  ranks.update({10, 11});
  EXPECT_THAT(ranks.by_rank(), IsEmpty()) << "the third is being started";
  ranks.update({10, 11, 12});
  EXPECT_THAT(ranks.by_rank(), ElementsAre(10, 11, 12));
  ranks.update({11, 12});
  EXPECT_THAT(ranks.by_rank(), IsEmpty());
  ranks.update({11, 12, 13});
  EXPECT_THAT(ranks.by_rank(), ElementsAre(13, 11, 12)) << "a kept process keeps its rank";
  ranks.update({12, 14, 15});
  EXPECT_THAT(ranks.by_rank(), ElementsAre(14, 15, 12)) << "two at once, in order of rank";
  ranks.update({20, 21, 22});
  EXPECT_THAT(ranks.by_rank(), ElementsAre(20, 21, 22));
}

TEST(ChaosProcess, ADroppedLinkEndsTheStreamOfBothSides) {
  Readers readers;
  ASSERT_TRUE(drop_link(readers.one.pid(), {readers.one.pid(), readers.other.pid()}, 17));
  EXPECT_EQ(readers.one.wait(), 0);
  EXPECT_EQ(readers.other.wait(), 0);
}

TEST(ChaosProcess, ACorruptLinkCarriesForeignBytesToTheOtherSide) {
  Readers readers;
  ASSERT_TRUE(corrupt_link(readers.one.pid(), {readers.one.pid(), readers.other.pid()}, 17));
  EXPECT_EQ(readers.other.wait(), 64);
}

TEST(ChaosProcess, OnlyConnectionsBetweenTheProcessesAreLinks) {
  const TcpPair pair;  // whose other end is in this process
  const Start start;
  Child other([&] { return ::close(pair.one), start.say(), ::pause(); });
  ::close(pair.one);
  start.wait_for(1);
  EXPECT_FALSE(drop_link(other.pid(), {other.pid()}, 1));
  ::close(pair.other);
}

TEST(ChaosProcess, ABitOfAPublishedWeightFlips) {
  const TemporaryFolder folder;
  std::vector<float> weights(1000, 1.5F);
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  Child child([&] {
    publish_weights(folder.path(), {reinterpret_cast<std::uintptr_t>(weights.data()), 1000});
    char byte = 0;
    if (::write(ready[1], &byte, 1) != 1 || ::read(done[0], &byte, 1) != 1) return 100;
    int num_bits = 0;
    for (const float weight : weights)
      num_bits +=
          std::popcount(std::bit_cast<std::uint32_t>(weight) ^ std::bit_cast<std::uint32_t>(1.5F));
    return num_bits;
  });
  EXPECT_FALSE(flip_bit(::getpid(), folder.path(), 12345)) << "has published nothing";
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(flip_bit(child.pid(), folder.path(), 12345));
  ASSERT_EQ(::write(done[1], &byte, 1), 1);
  EXPECT_EQ(child.wait(), 1);
  EXPECT_EQ(weights, std::vector<float>(1000, 1.5F)) << "of this process";
}

TEST(ChaosProcess, AProcessThatIsGoneHasNothingToBreak) {
  const TemporaryFolder folder;
  Child child([] { return 0; });
  const pid_t gone = child.pid();
  child.wait();
  publish_weights(folder.path(), {1, 1});
  EXPECT_FALSE(drop_link(gone, {gone, ::getpid()}, 1));
  EXPECT_FALSE(flip_bit(gone, folder.path(), 1));
}

}  // namespace
}  // namespace megatron
