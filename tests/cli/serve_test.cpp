// `megatron serve` under `megatron launch`: it tells its state, ends at a signal, and is started
// again when a rank has died.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/running_launch.h"
#include "cli/shell.h"
#include "cli/tiny_training.h"
#include "server/raw_client.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

/// A folder with a trained model.
class Serve : public testing::Test {
 protected:
  Serve() {
    std::string command = kProgram + " pretrain";
    for (const std::string& word :
         tiny_training({"--micro-batch-size", "1", "--global-batch-size", "2", "--train-iters", "1",
                        "--position-embedding-type", "rope", "--save", model_}))
      command += " " + word;
    const auto [code, text] = shell(command);
    EXPECT_EQ(code, 0) << text;
  }

  Args serve(const Args& launch, const Args& flags) const {
    return joined(launch, joined({"--", "serve", "--load", model_, "--port", "0"}, flags));
  }
  /// Returns the port that the last start listens on.
  static std::int64_t port(const RunningLaunch& launch) {
    const std::string all = launch.output(), text = "listening on http://127.0.0.1:";
    return std::stoll(all.substr(all.rfind(text) + text.size()));
  }
  static RawAnswer ask(std::int64_t port, const std::string& path) {
    RawClient client(port);
    client.send(get(path));
    return client.answer();
  }

  const TemporaryFolder folder_;
  const std::string model_ = (folder_ / "tiny").string();
};

TEST_F(Serve, TellsItsStateAndEndsAtASignal) {
  for (const Args& flags : {Args{}, Args{"--tensor-model-parallel-size", "2"}}) {
    SCOPED_TRACE(flags.empty() ? "two replicas" : "two shards");
    const RunningLaunch launch(
        serve({"--nproc-per-node", "2"},
              joined({"--grace-seconds", "0", "--max-model-len", "5000"}, flags)));
    ASSERT_TRUE(launch.wait_for("listening on")) << launch.output();
    EXPECT_EQ(ask(port(launch), "/health").status, 200);
    EXPECT_THAT(ask(port(launch), "/v1/models").body, HasSubstr(R"("id":"tiny")"));
    EXPECT_THAT(ask(port(launch), "/metrics").body, HasSubstr("megatron_num_requests_running 0\n"));
    EXPECT_EQ(ask(port(launch), "/nothing").status, 404);
    RawClient stream(port(launch));
    stream.send(post("/v1/completions", R"({"prompt": [1], "max_tokens": 4000, "ignore_eos": true,
                                            "stream": true})"));
    EXPECT_TRUE(stream.read_until("data: {")) << stream.unread();
    ::kill(launch.pid(), SIGTERM);
    EXPECT_TRUE(stream.read_until(R"("message":"the engine was stopped)"));
    EXPECT_TRUE(stream.read_until("data: [DONE]"));
    EXPECT_EQ(launch.wait(), 128 + SIGTERM) << launch.output();
    EXPECT_THAT(launch.output(), HasSubstr("\"GET /nothing\" 404 total_ms="));
  }
}

TEST_F(Serve, IsStartedAgainWhenARankHasDied) {
  const RunningLaunch launch(serve({"--nproc-per-node", "2", "--max-restarts", "1"},
                                   {"--tensor-model-parallel-size", "2"}));
  ASSERT_TRUE(launch.wait_for("listening on")) << launch.output();
  ASSERT_THAT(launch.ranks(), SizeIs(2));
  ::kill(launch.ranks()[1], SIGKILL);
  ASSERT_TRUE(launch.wait_for("listening on", 2)) << launch.output();
  EXPECT_THAT(launch.output(), HasSubstr("rank 1 was killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(ask(port(launch), "/health").status, 200);
  ::kill(launch.pid(), SIGTERM);
  EXPECT_EQ(launch.wait(), 128 + SIGTERM) << launch.output();
}

}  // namespace
}  // namespace megatron
