// What rank 0 tells all ranks about their hosts.
#include "megatron/parallel/rendezvous/host_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RankRecord record(std::int64_t host, const std::string& cpus = "f") {
  const std::string number = std::to_string(host);
  return {.host = "node" + number,
          .host_id = "id" + number,
          .address = "10.0." + std::to_string(host / 256) + "." + std::to_string(host % 256),
          .pid = 1,
          .cpus = cpus,
          .settings_hash = "hash"};
}

RunHosts read_as(const std::vector<RankRecord>& records, std::int64_t rank) {
  const std::string text = write_hosts(records, "start 7").dump();
  return read_hosts(parse_json(text, "test"), records[static_cast<std::size_t>(rank)], rank,
                    static_cast<std::int64_t>(records.size()));
}

TEST(HostTable, SaysWhereEachRankRuns) {
  const std::vector<RankRecord> records{record(0), record(0), record(0), record(1), record(1),
                                        record(1), record(2), record(2), record(2), record(3)};
  const RunHosts hosts = read_as(records, 7);
  EXPECT_THAT(hosts.names, ElementsAre("node0", "node1", "node2", "node3"));
  EXPECT_THAT(hosts.host_of_rank, ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2, 3));
  EXPECT_EQ(hosts.start, "start 7");
  EXPECT_EQ(hosts.own_identity, "id2");
  EXPECT_EQ(hosts.own_address, "10.0.0.2");
  EXPECT_EQ(hosts.cpus.index, 1);
  EXPECT_EQ(hosts.cpus.count, 3);
}

/// mpirun may place ranks round-robin.
TEST(HostTable, RanksOfAHostNeedNotFollowEachOther) {
  const std::vector<RankRecord> records{record(0), record(1), record(0),
                                        record(1), record(1), record(0)};
  EXPECT_THAT(read_as(records, 0).host_of_rank, ElementsAre(0, 1, 0, 1, 1, 0));
  const std::vector<std::pair<std::int64_t, std::int64_t>> index_and_count{{0, 3}, {0, 3}, {1, 3},
                                                                           {1, 3}, {2, 3}, {2, 3}};
  for (std::int64_t rank = 0; rank < 6; ++rank) {
    const RunHosts hosts = read_as(records, rank);
    EXPECT_EQ(std::pair(hosts.cpus.index, hosts.cpus.count),
              index_and_count[static_cast<std::size_t>(rank)])
        << rank;
  }
}

/// Slurm may bind the ranks of a host to disjoint CPUs.
TEST(HostTable, OnlyRanksWithTheSameCpusShareThem) {
  std::vector<RankRecord> records;
  for (std::int64_t host = 0; host < 3; ++host)
    for (const char* cpus : {"3", "3", "c", "c"}) records.push_back(record(host, cpus));
  const RunHosts hosts = read_as(records, 11);
  EXPECT_THAT(hosts.host_of_rank, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_EQ(hosts.cpus.index, 1);
  EXPECT_EQ(hosts.cpus.count, 2);
}

/// Every rank parses it: 10,000 hosts take what their names and addresses take.
TEST(HostTable, IsShortForManyHosts) {
  std::vector<RankRecord> records;
  std::size_t names = 0;
  for (std::int64_t host = 0; host < 10'000; ++host) {
    for (int rank = 0; rank < 8; ++rank) records.push_back(record(host));
    names += records.back().host.size() + records.back().address.size();
  }
  EXPECT_LT(write_hosts(records, "start").dump().size(), names + 5 * 10'000);
  const RunHosts hosts = read_as(records, 79'999);
  EXPECT_EQ(hosts.names.size(), 10'000U);
  EXPECT_EQ(hosts.host_of_rank.at(40'000), 5'000);
  EXPECT_EQ(hosts.own_address, "10.0.39.15");
}

/// Gloo connects addresses of one family only.
TEST(HostTable, HostsUseAddressesOfOneFamily) {
  const auto own_address = [](const std::vector<std::string>& addresses, std::int64_t rank) {
    std::vector<RankRecord> records;
    for (const std::string& address : addresses) {
      records.push_back(record(static_cast<std::int64_t>(records.size())));
      records.back().address = address;
    }
    return read_as(records, rank).own_address;
  };
  EXPECT_EQ(own_address({"10.0.0.1", "10.0.0.2"}, 1), "10.0.0.2");
  EXPECT_EQ(own_address({"fd00::1", "fd00::2"}, 1), "fd00::2");
  // Containers that share a network, of which one names loopback by its other address.
  EXPECT_EQ(own_address({"127.0.0.1", "::1"}, 1), "127.0.0.1");
  EXPECT_EQ(own_address({"::1", "::1"}, 1), "::1");
}

TEST(HostTable, RefusesATableOfAnotherRun) {
  const std::vector<RankRecord> records{record(0), record(0), record(1)};
  const auto read = [&](const Json& table, std::int64_t world_size) {
    read_hosts(table, records[0], 0, world_size);
  };
  const Json good = write_hosts(records, "start");
  EXPECT_THAT(message_of([&] { read(good, 4); }), HasSubstr("is of 3 ranks"));
  EXPECT_THAT(message_of([&] { read(good, 2); }), HasSubstr("more hosts or ranks"));
  for (const Json& runs : {Json::array({{0, 2, 0, 2}}), Json::array({{0, 2, 0, -2, 1}}),
                           Json::array({{0, 2, 0, 3, 1'000'000'000'000}}), Json::array({"a"}),
                           Json::array({{0, 2, 0, 2, 0.5}}), Json::array({{7, 2, 0, 3, 1}})}) {
    Json bad = good;
    bad["runs"] = runs;
    EXPECT_THAT(message_of([&] { read(bad, 3); }), HasSubstr("rank 0's answer in the run's store"))
        << runs;
  }
  Json other = good;
  other.erase("addresses");
  EXPECT_THAT(message_of([&] { read(other, 3); }), HasSubstr("addresses"));
}

}  // namespace
}  // namespace megatron
