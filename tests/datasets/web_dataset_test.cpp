#include "megatron/datasets/webdataset/web_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "datasets/tar_writer.h"
#include "megatron/base/json.h"
#include "megatron/datasets/sampler.h"
#include "megatron/datasets/webdataset/shard_names.h"
#include "megatron/datasets/webdataset/shard_order.h"
#include "support/message_of.h"
#include "support/object_server.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using test::tar_end;
using test::tar_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string hex(const std::string& bytes) {
  std::string text;
  char digits[3];
  for (const char byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

// braceexpand 0.1.7 gives the same lists, in tests/parity/webdataset_parity.py.
TEST(ShardNames, Expand) {
  EXPECT_THAT(expand_shard_names("a-{008..011}.tar"),
              ElementsAre("a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"));
  EXPECT_THAT(expand_shard_names("{2..0}"), ElementsAre("2", "1", "0"));
  EXPECT_THAT(expand_shard_names("{0..6..3}"), ElementsAre("0", "3", "6"));
  EXPECT_THAT(expand_shard_names("{x,y{1..2}}-{a,b}"),
              ElementsAre("x-a", "x-b", "y1-a", "y1-b", "y2-a", "y2-b"));
  EXPECT_THAT(expand_shard_names("a.tar::b{1,2}.tar"), ElementsAre("a.tar", "b1.tar", "b2.tar"));
  EXPECT_THAT(expand_shard_names("plain{x}"), ElementsAre("plain{x}"));
  EXPECT_THAT(expand_shard_names("{-1..1}"), ElementsAre("-1", "0", "1"));
  for (const char* wrong : {"a{1..2", "a1}", "{{1,2}"})
    EXPECT_THAT(message_of([&] { expand_shard_names(wrong); }), HasSubstr("do not match")) << wrong;
  for (const char* large : {"{0..99999999}", "{0..9999}{0..9999}"})
    EXPECT_THAT(message_of([&] { expand_shard_names(large); }), HasSubstr("ten million")) << large;
}

class WebDatasetTest : public ::testing::Test {
 protected:
  /// Writes shard `number` with `samples` samples, each with a txt and a cls.
  std::string shard(int number, int samples) const {
    std::string archive;
    for (int i = 0; i < samples; ++i) {
      const std::string key = std::to_string(number) + "-" + std::to_string(i);
      archive += tar_file(key + ".txt", "text " + key) + tar_file(key + ".cls", "1");
    }
    return folder_.write("s" + std::to_string(number) + ".tar", archive + tar_end());
  }
  WebDataset open(const std::vector<std::string>& shards, WebDatasetOptions options = {}) {
    if (options.cache_folder.empty()) options.cache_folder = (folder_ / "cache").string();
    return WebDataset(shards, options, warnings_);
  }

  const TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(WebDatasetTest, ReadsWhatThePackageReads) {
  const std::string fixtures =
      std::string(MEGATRON_SOURCE_DIR) + "/tests/datasets/fixtures/shards/";
  const Json expected = read_json(fixtures + "samples.json");
  ASSERT_EQ(expected.size(), 3u);
  for (const auto& [name, samples] : expected.items()) {
    const WebDataset dataset = open({fixtures + name + ".tar"});
    ASSERT_EQ(dataset.size(), static_cast<std::int64_t>(samples.size())) << name;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      const Json& theirs = samples[static_cast<std::size_t>(i)];
      const WebSample ours = dataset.sample(i);
      EXPECT_EQ(ours.key, theirs["key"]);
      std::map<std::string, std::string> fields;
      for (const WebField& field : ours.fields) fields[field.name] = hex(field.bytes);
      EXPECT_EQ(Json(fields), theirs["fields"]) << ours.key;
    }
  }
}

TEST_F(WebDatasetTest, ReadsSamplesOfShardsInAnyOrder) {
  const WebDataset dataset = open({shard(0, 3), shard(1, 0), shard(2, 2)});
  EXPECT_EQ(dataset.size(), 5);
  EXPECT_EQ(dataset.sample(4).key, "2-1");
  EXPECT_EQ(dataset.sample(3).fields[0].bytes, "text 2-0");
  EXPECT_EQ(dataset.sample(0).key, "0-0");
  EXPECT_EQ(dataset.describe(2).fields[0].size, 8u);
  EXPECT_EQ(dataset.describe(2).fields[0].bytes, "");
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(WebDatasetTest, KeepsItsIndexUntilAShardChanges) {
  const std::string path = shard(0, 3);
  EXPECT_EQ(open({path}).size(), 3);
  std::string damaged = test::tar_file("x.txt", "data") + tar_end();
  EXPECT_EQ(open({path}).size(), 3);
  EXPECT_THAT(warnings_, ElementsAre());
  folder_.write("s0.tar", damaged);
  EXPECT_EQ(open({path}).size(), 1);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is built again")));
}

TEST_F(WebDatasetTest, RefusesAFieldThatASampleHasTwice) {
  const std::string path =
      folder_.write("twice.tar", tar_file("a.txt", "1") + tar_file("a.TXT", "2") + tar_end());
  EXPECT_THAT(message_of([&] { open({path}); }),
              HasSubstr(path + ": the sample a has the field txt twice, at offset 1024"));
}

TEST_F(WebDatasetTest, NamesAShardThatIsCutShort) {
  const std::string whole = tar_file("a.txt", "1") + tar_file("b.txt", "2");
  const std::string path = folder_.write("cut.tar", whole);
  EXPECT_THAT(message_of([&] {
                open({shard(0, 1), path});
              }),
              HasSubstr(path + ": the archive ends without its last block"));
}

TEST_F(WebDatasetTest, ReadsRemoteShards) {
  ObjectServer server;
  for (int i = 0; i < 2; ++i) {
    std::ifstream stream(shard(i, 4), std::ios::binary);
    server.put("s" + std::to_string(i) + ".tar",
               std::string(std::istreambuf_iterator<char>(stream), {}));
  }
  const WebDataset remote = open(
      expand_shard_names(server.url("s{0..1}.tar")),
      {.storage = {.cache_path = folder_ / "remote", .cache_bytes = 8192, .chunk_bytes = 2048}});
  ASSERT_EQ(remote.size(), 8);
  for (std::int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(remote.sample(i).fields[0].bytes, "text " + remote.sample(i).key);
}

TEST(SplitMemberName, FollowsThePackage) {
  const auto split = [](const std::string& name) {
    const auto part = split_member_name(name);
    return part ? part->first + "|" + part->second : "none";
  };
  EXPECT_EQ(split("a/b.c/d.E.f"), "a/b.c/d|e.f");
  EXPECT_EQ(split("a.b/c"), "none");
  EXPECT_EQ(split(".x"), "none");
  EXPECT_EQ(split("q/.x"), "q/|x");
  EXPECT_EQ(split("q.r/.x"), "none");
  EXPECT_EQ(split("p/q.r/.x"), "none");
  EXPECT_EQ(split("/.x"), "/|x");
  EXPECT_EQ(split("a..b"), "a|.b");
}

TEST(ShardOrder, TakesEverySampleOncePerEpoch) {
  const ShardOrder order({5, 0, 17, 3, 1}, {.seed = 3, .shuffle_window = 4});
  std::vector<std::int64_t> first;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> seen;
    std::vector<std::int64_t> taken;
    for (std::int64_t i = 0; i < 26; ++i) taken.push_back(order.sample(26 * epoch + i));
    seen.insert(taken.begin(), taken.end());
    EXPECT_EQ(seen.size(), 26u);
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), 25);
    if (epoch == 0) first = taken;
    if (epoch > 0) {
      EXPECT_NE(taken, first);
    }
  }
}

TEST(ShardOrder, DependsOnSeedAndPositionAlone) {
  const ShardOrder order({50, 50}, {.seed = 3, .shuffle_window = 16});
  const ShardOrder same({50, 50}, {.seed = 3, .shuffle_window = 16});
  const ShardOrder other({50, 50}, {.seed = 4, .shuffle_window = 16});
  int equal = 0;
  for (std::int64_t i = 199; i >= 0; --i) {
    EXPECT_EQ(order.sample(i), same.sample(i));
    equal += order.sample(i) == other.sample(i);
  }
  EXPECT_LT(equal, 50);
  const ShardOrder plain({50, 50}, {.seed = 3, .shuffle_window = 0});
  EXPECT_EQ(plain.sample(77), 77);
  EXPECT_EQ(plain.sample(177), 77);
}

/// Ranks take positions, so 1, 2 and 4 of them consume the same samples in every step.
TEST(ShardOrder, ServesAnyNumberOfRanks) {
  const ShardOrder order({40, 40}, {.seed = 3, .shuffle_window = 16});
  const auto step = [&](std::int64_t ranks, std::int64_t consumed) {
    std::vector<std::int64_t> taken;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      Sampler sampler({.total_samples = 80,
                       .consumed_samples = consumed,
                       .micro_batch_size = 8 / ranks,
                       .data_parallel_rank = rank,
                       .data_parallel_size = ranks});
      const std::optional<BatchIndices> batch = sampler.next();
      for (const std::int64_t position : batch->samples) taken.push_back(order.sample(position));
    }
    return taken;
  };
  for (const std::int64_t consumed : {0, 8, 64}) {
    EXPECT_EQ(step(2, consumed), step(1, consumed));
    EXPECT_EQ(step(4, consumed), step(1, consumed));
  }
}

TEST(ShardOrder, NeedsSamples) {
  EXPECT_THAT(message_of([] { ShardOrder({0, 0}, {}); }), HasSubstr("contain no samples"));
}

}  // namespace
}  // namespace megatron
