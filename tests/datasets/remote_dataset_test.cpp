// Datasets in an object store give the samples of the same files on a local disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "datasets/corpus.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/data_loader.h"
#include "megatron/datasets/indexed_dataset.h"
#include "support/message_of.h"
#include "support/object_server.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

class RemoteDatasetTest : public ::testing::Test {
 protected:
  RemoteDatasetTest() {
    test::write_corpus(prefix_, test::small_corpus());
    for (const std::string extension : {".bin", ".idx"})
      server_.put("data/a" + extension, test::read_text_file(prefix_ + extension),
                  "\"" + extension + "\"");
  }

  /// Chunks of a few bytes, of which two fit into the cache.
  StorageOptions storage() const {
    return {.cache_path = folder_ / "cache",
            .cache_bytes = 64,
            .chunk_bytes = 32,
            .retries = {.attempts = 3, .first_delay_s = 0.001, .timeout_s = 5}};
  }
  DataConfig config(const std::string& prefix) const {
    DataConfig data;
    data.data_path = {prefix};
    data.split = "1,0,0";
    data.data_cache_path = (folder_ / "orders").string();
    data.object_storage_cache_path = (folder_ / "cache").string();
    data.object_storage_chunk_mib = 1;
    return data;
  }

  const TemporaryFolder folder_;
  const std::string prefix_ = (folder_ / "a").string();
  ObjectServer server_;
};

TEST_F(RemoteDatasetTest, ReadsTheSequencesOfTheLocalFiles) {
  const IndexedDataset local(prefix_), remote(server_.url("data/a"), {.storage = storage()});
  remote.check();
  ASSERT_EQ(remote.num_sequences(), local.num_sequences());
  EXPECT_EQ(remote.bin_size(), local.bin_size());
  for (std::int64_t i = 0; i < local.num_sequences(); ++i) {
    std::vector<std::int64_t> expected(static_cast<std::size_t>(local.sequence_lengths()[i]));
    std::vector<std::int64_t> tokens(expected.size());
    local.read(i, 0, expected);
    remote.read(i, 0, tokens);
    EXPECT_EQ(tokens, expected) << i;
  }
}

TEST_F(RemoteDatasetTest, ReadsThroughFaults) {
  const IndexedDataset local(prefix_);
  server_.set_fault([](int number, const ServerRequest&, ServerAnswer& answer) {
    if (number % 3 == 1) answer.status = "503 Slow Down";
    if (number % 3 == 2) answer.drop_after = answer.body.size() / 2;
  });
  const IndexedDataset remote(server_.url("data/a"), {.storage = storage()});
  std::string expected(local.bin_size(), '\0'), bytes(local.bin_size(), '\0');
  local.read_bytes(0, std::as_writable_bytes(std::span(expected)));
  remote.read_bytes(0, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, expected);
}

TEST_F(RemoteDatasetTest, GivesTheBatchesOfTheLocalFiles) {
  const DatasetRequest request{.sequence_length = 16, .num_samples = {60, 0, 0}};
  const auto batches = [&](const std::string& prefix, std::int64_t workers) {
    const Datasets datasets = build_datasets(config(prefix), request);
    DataLoader loader(datasets.splits[0],
                      {.sampler = {.micro_batch_size = 4}, .num_workers = workers});
    std::vector<std::vector<std::int64_t>> tokens;
    while (const std::optional<Batch> batch = loader.next()) tokens.push_back(batch->get("tokens"));
    return tokens;
  };
  const auto local = batches(prefix_, 0);
  EXPECT_GE(local.size(), 15u);
  EXPECT_EQ(batches(server_.url("data/a"), 0), local);
  EXPECT_EQ(batches(server_.url("data/a"), 4), local);
}

TEST_F(RemoteDatasetTest, KeepsTheOrderBesideTheCopyOfTheIndex) {
  DataConfig data = config(server_.url("data/a"));
  data.data_cache_path = "";
  build_datasets(data, {.sequence_length = 16, .num_samples = {60, 0, 0}});
  EXPECT_TRUE(fs::is_directory(folder_.path() / "cache" / server_.origin().substr(7) /
                               "data/a/cache/GPTDataset_indices"));
}

TEST_F(RemoteDatasetTest, ReadsAfterAKillDuringACopy) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  server_.set_fault([&](int number, const ServerRequest& request, ServerAnswer& answer) {
    if (number < 2 || !request.target.ends_with(".bin") || request.last == 0) return;
    [[maybe_unused]] const ssize_t written = ::write(ready[1], "r", 1);
    answer.delay = std::chrono::milliseconds(200);
  });
  const pid_t pid = ::fork();
  if (pid == 0) {
    const IndexedDataset remote(server_.url("data/a"), {.storage = storage()});
    std::vector<std::int64_t> token(1);
    remote.read(0, 0, token);
    ::_exit(0);
  }
  char signal = 0;
  ASSERT_EQ(::read(ready[0], &signal, 1), 1);
  ::kill(pid, SIGKILL);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  server_.set_fault({});
  const IndexedDataset local(prefix_), remote(server_.url("data/a"), {.storage = storage()});
  std::string expected(local.bin_size(), '\0'), bytes(local.bin_size(), '\0');
  local.read_bytes(0, std::as_writable_bytes(std::span(expected)));
  remote.read_bytes(0, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, expected);
}

TEST_F(RemoteDatasetTest, NamesAFileThatIsMissing) {
  server_.put("data/b.idx", test::read_text_file(prefix_ + ".idx"));
  EXPECT_THAT(message_of([&] { IndexedDataset(server_.url("data/b"), {.storage = storage()}); }),
              HasSubstr("cannot read " + server_.url("data/b.bin") + ": it does not exist"));
  EXPECT_THAT(message_of([&] { IndexedDataset(server_.url("data/c"), {.storage = storage()}); }),
              HasSubstr("cannot read " + server_.url("data/c.idx") + ": it does not exist"));
}

TEST_F(RemoteDatasetTest, RefusesAPrefixWithAQuery) {
  EXPECT_THAT(
      message_of([&] { IndexedDataset(server_.url("data/a?key=1"), {.storage = storage()}); }),
      HasSubstr("the prefix of a dataset must not contain a query"));
}

TEST_F(RemoteDatasetTest, NoticesFilesThatDoNotBelongTogether) {
  server_.put("data/a.bin", std::string(10, 'x'));
  EXPECT_THAT(message_of([&] { IndexedDataset(server_.url("data/a"), {.storage = storage()}); }),
              HasSubstr("lies outside"));
}

}  // namespace
}  // namespace megatron
