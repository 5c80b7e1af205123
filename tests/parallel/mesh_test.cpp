// Compares the mesh with the groups of megatron-core (fixtures/mesh_groups.txt), and checks its
// properties in random worlds of up to 100,000 ranks.
#include "megatron/parallel/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "fake_communicators.h"
#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<std::string> kAllAxes{"tp",    "cp",    "dp",    "pp",       "dp-cp",
                                        "tp-cp", "tp-dp", "tp-pp", "tp-dp-cp", "ep",
                                        "etp",   "edp",   "tp-ep", "tp-ep-pp", "world"};

std::string mistake(const MeshSizes& sizes, std::int64_t world_size) {
  return message_of([&] { Mesh(sizes, world_size); });
}

std::string checksum_of(const std::vector<RankList>& groups) {
  std::string text;
  for (const RankList& group : groups) {
    if (!text.empty()) text += ';';
    for (std::size_t i = 0; i < group.size(); ++i)
      text += (i > 0 ? "," : "") + std::to_string(group[i]);
  }
  return md5_hex(text).substr(0, 8);
}

/// One line of the fixtures: sizes, world, and the checksum of each axis' groups. A world without
/// checksums is refused.
struct RealWorld {
  MeshSizes sizes;
  std::int64_t world_size = 0, num_instances = 1;
  std::vector<std::pair<std::string, std::string>> checksums;
};

/// Returns the fixtures, or the file that MEGATRON_MESH_GROUPS names (tests/parity/mesh_parity.py).
std::vector<RealWorld> real_worlds() {
  const char* other = std::getenv("MEGATRON_MESH_GROUPS");
  std::ifstream file(
      other != nullptr ? other : MEGATRON_SOURCE_DIR "/tests/parallel/fixtures/mesh_groups.txt");
  std::vector<RealWorld> worlds;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    RealWorld world;
    MeshSizes& s = world.sizes;
    std::int64_t etp = 1;
    words >> s.order >> s.tp >> s.cp >> s.ep >> etp >> s.pp >> world.world_size >>
        world.num_instances;
    s.etp = etp;
    for (std::string word; words >> word && word != "refused";) {
      world.checksums.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
    }
    worlds.push_back(world);
  }
  return worlds;
}

std::string name_of(const RealWorld& world) {
  const MeshSizes& s = world.sizes;
  return detail::concatenate(s.order, " tp ", s.tp, " cp ", s.cp, " ep ", s.ep, " etp ",
                             s.expert_tp(), " pp ", s.pp, " world ", world.world_size,
                             " instances ", world.num_instances);
}

/// Returns the groups of one of megatron-core's group names, in its order.
std::vector<RankList> groups_by_real_name(const Mesh& mesh, const std::string& name,
                                          std::int64_t num_instances) {
  std::vector<RankList> groups;
  if (name.starts_with("intra-") || name.starts_with("inter-")) {
    const std::string axis = name.substr(6);
    const auto part = static_cast<std::size_t>(mesh.size(axis) / num_instances);
    for (const RankList& group : mesh.groups(axis)) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (name.starts_with("intra-") && i % part == 0)
          groups.push_back(mesh.instance_parts(group[i], axis, num_instances).inner);
        if (name.starts_with("inter-") && i < part)
          groups.push_back(mesh.instance_parts(group[i], axis, num_instances).outer);
      }
    }
  } else {
    groups = mesh.groups(name);
  }
  return groups;
}

TEST(Mesh, GroupsAreMegatronCores) {
  const auto worlds = real_worlds();
  ASSERT_GE(worlds.size(), 500U);
  std::size_t compared = 0;
  for (const RealWorld& world : worlds) {
    SCOPED_TRACE(name_of(world));
    if (world.checksums.empty()) continue;
    const Mesh mesh(world.sizes, world.world_size);
    for (const auto& [name, checksum] : world.checksums) {
      if (name.ends_with("embd")) continue;  // follows from what the stages hold (StageHolders)
      EXPECT_EQ(checksum_of(groups_by_real_name(mesh, name, world.num_instances)), checksum)
          << name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 5 * worlds.size());
}

// The example of sixteen ranks in the docstring of initialize_model_parallel: tp 2, pp 4.
TEST(Mesh, ExampleOfMegatronCore) {
  const Mesh mesh({.tp = 2, .pp = 4}, 16);
  EXPECT_THAT(mesh.group(5, "dp"), ElementsAre(5, 7));
  EXPECT_THAT(mesh.group(5, "tp"), ElementsAre(4, 5));
  EXPECT_THAT(mesh.group(5, "pp"), ElementsAre(1, 5, 9, 13));
  EXPECT_THAT(mesh.group(5, "pp-tp"), ElementsAre(0, 1, 4, 5, 8, 9, 12, 13));
  EXPECT_EQ(mesh.coordinate(5, "pp"), 1);
  EXPECT_EQ(mesh.size("world"), 16);
}

MeshSizes random_sizes(std::mt19937& random, std::int64_t& world_size) {
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto degree = [&] { return draw(0, 2) == 0 ? 1 : draw(1, 12); };
  std::vector<std::string> axes{"tp", "cp", "ep", "dp"};
  std::shuffle(axes.begin(), axes.end(), random);
  MeshSizes sizes{.tp = degree(),
                  .cp = degree(),
                  .ep = degree(),
                  .etp = std::nullopt,
                  .pp = degree(),
                  .order = ""};
  if (draw(0, 1) == 1) sizes.etp = degree();
  for (const std::string& axis : axes) sizes.order += axis + "-";
  sizes.order += "pp";
  const std::int64_t unit = std::lcm(sizes.tp * sizes.cp, sizes.expert_tp() * sizes.ep) * sizes.pp;
  const std::int64_t most = std::max<std::int64_t>(1, (draw(0, 99) == 0 ? 100'000 : 3'000) / unit);
  world_size = unit * draw(1, most);
  return sizes;
}

void expect_partition(const Mesh& mesh, const std::string& axis) {
  std::vector<int> times(static_cast<std::size_t>(mesh.world_size()));
  const auto groups = mesh.groups(axis);
  ASSERT_EQ(static_cast<std::int64_t>(groups.size()), mesh.num_groups(axis)) << axis;
  for (const RankList& group : groups) {
    ASSERT_EQ(static_cast<std::int64_t>(group.size()), mesh.size(axis)) << axis;
    ASSERT_TRUE(std::is_sorted(group.begin(), group.end())) << axis;
    for (const std::int64_t rank : group) ++times.at(static_cast<std::size_t>(rank));
  }
  ASSERT_TRUE(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }))
      << axis;
}

void expect_one_rank_agrees(const Mesh& mesh, std::int64_t rank) {
  for (const std::string& axis : kAllAxes) {
    const RankList group = mesh.group(rank, axis);
    ASSERT_EQ(static_cast<std::int64_t>(group.size()), mesh.size(axis)) << axis;
    ASSERT_TRUE(std::is_sorted(group.begin(), group.end())) << axis;
    ASSERT_EQ(group.at(static_cast<std::size_t>(mesh.coordinate(rank, axis))), rank) << axis;
    ASSERT_EQ(mesh.group(group.back(), axis), group) << axis;
  }
}

TEST(Mesh, PropertiesOfRandomWorlds) {
  std::mt19937 random(20260102);
  std::int64_t largest = 0;
  for (int i = 0; i < 3000; ++i) {
    std::int64_t world_size = 0;
    const MeshSizes sizes = random_sizes(random, world_size);
    if (world_size > 100'000) continue;
    largest = std::max(largest, world_size);
    SCOPED_TRACE(name_of({sizes, world_size, 1, {}}));
    const Mesh mesh(sizes, world_size);
    for (const std::string& axis : kAllAxes) {
      if (world_size <= 300 || axis == "tp-dp-cp" || axis == "pp") expect_partition(mesh, axis);
    }
    for (int j = 0; j < 4; ++j)
      expect_one_rank_agrees(
          mesh, std::uniform_int_distribution<std::int64_t>(0, world_size - 1)(random));
    const std::int64_t rank = world_size / 2;
    const std::int64_t tp = mesh.coordinate(rank, "tp"), cp = mesh.coordinate(rank, "cp"),
                       dp = mesh.coordinate(rank, "dp");
    EXPECT_EQ(mesh.size("tp") * mesh.size("cp") * mesh.size("dp") * mesh.size("pp"), world_size);
    EXPECT_TRUE(tp < sizes.tp && cp < sizes.cp && dp < mesh.size("dp"));
    EXPECT_EQ(mesh.size("etp") * mesh.size("ep") * mesh.size("edp") * mesh.size("pp"), world_size);
  }
  EXPECT_GT(largest, 20'000);
}

TEST(Mesh, AQuestionOnOneRankOfManyIsCheap) {
  const Mesh mesh({.tp = 8, .cp = 2, .ep = 64, .etp = 1, .pp = 16}, 98'304);
  std::int64_t sum = 0;
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank)
    sum += mesh.group(rank, "tp").front() + mesh.group(rank, "ep").front();
  EXPECT_EQ(sum, 98'304LL * 98'303 - 98'304LL * 7 / 2 - 98'304LL * 63 / 2);
}

TEST(Mesh, InstancesOfTheDistributedOptimizer) {
  // In megatron-core, consecutive slices of dp-cp are one instance each, and the ranks at the same
  // position of every slice reduce among each other.
  const Mesh mesh({.tp = 2, .cp = 2}, 16);
  EXPECT_THAT(mesh.group(4, "dp-cp"), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
  const GroupParts parts = mesh.instance_parts(4, "dp-cp", 2);
  EXPECT_THAT(parts.inner, ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(parts.outer, ElementsAre(4, 12));
  EXPECT_EQ(mesh.instance_parts(4, "dp-cp", 1).inner, mesh.group(4, "dp-cp"));
  EXPECT_THROW(mesh.instance_parts(4, "dp-cp", 3), UserError);
}

TEST(Mesh, MistakesAreNamed) {
  const auto has = [](const char* text) { return HasSubstr(text); };
  EXPECT_THAT(mistake({.tp = 2}, 1),
              has("--tensor-model-parallel-size 2: needs a multiple of 2 processes, this is one"));
  EXPECT_THAT(mistake({.tp = 2}, 1), has("megatron launch --nproc-per-node 2 -- ..."));
  EXPECT_THAT(mistake({.tp = 2, .cp = 2, .pp = 2}, 12),
              has("--tensor-model-parallel-size 2 x --pipeline-model-parallel-size 2 x "
                  "--context-parallel-size 2: needs a multiple of 8 processes, there "
                  "are 12"));
  EXPECT_THAT(mistake({.tp = 2, .cp = 2, .pp = 2}, 12), has("start 8 or 16"));
  EXPECT_THAT(mistake({.tp = 2, .ep = 3}, 8),
              has("--tensor-model-parallel-size 2 x --expert-model-parallel-size 3: needs a "
                  "multiple of 6 processes"));
  EXPECT_THAT(mistake({.tp = 2, .ep = 3, .etp = 1}, 8),
              has("--expert-model-parallel-size 3: needs a multiple of 3 processes, there are 8"));
  EXPECT_THAT(mistake({.tp = 0}, 1),
              has("--tensor-model-parallel-size: must be at least 1, got 0"));
  EXPECT_THAT(mistake({.tp = std::int64_t{1} << 40, .pp = std::int64_t{1} << 40}, 8),
              has("needs more processes than any run can have"));
  EXPECT_THAT(mistake({}, 0), has("world: has 0 ranks"));
  EXPECT_THAT(mistake({.tp = 2, .order = "dp-pp"}, 4), has("omits tp, whose size is 2"));
  EXPECT_THAT(mistake({.tp = 2, .order = "tp-tp-dp"}, 4),
              has("'tp' is repeated or is not an axis"));
  EXPECT_THAT(mistake({.tp = 2, .order = "tp-dp-xp"}, 4),
              has("'xp' is repeated or is not an axis"));
  EXPECT_THAT(mistake({.tp = 2, .etp = 1, .pp = 2, .order = "tp-ep-cp-pp-dp"}, 8),
              has("puts pipeline neighbours 2 ranks apart in dense layers and 1 in experts"));
  EXPECT_EQ(mistake({.tp = 2, .ep = 2, .etp = 1, .pp = 2, .order = "tp-cp-ep-pp-dp"}, 8),
            "no error");
}

TEST(Mesh, UnknownAxesAreNamed) {
  const Mesh mesh({.tp = 2}, 4);
  EXPECT_THROW(mesh.group(0, "xp"), UserError);
  EXPECT_THROW(mesh.group(0, "ep-cp"), UserError);
  EXPECT_THROW(mesh.group(0, "tp-tp"), UserError);
  EXPECT_THROW(mesh.group(4, "tp"), InternalError);
}

TEST(Mesh, TableOfASmallWorld) {
  EXPECT_EQ(Mesh({.tp = 2, .pp = 2}, 8).table(),
            "mesh of 8 ranks, order tp-cp-ep-dp-pp\n"
            "  axis    ranks  groups                 these ranks\n"
            "  tp          2  0 1 | 2 3 | 4 5 | 6 7  share each layer's matrices (and, with "
            "--sequence-parallel, the sequence between them)\n"
            "  dp          2  0 2 | 1 3 | 4 6 | 5 7  hold the same weights, see different samples\n"
            "  pp          2  0 4 | 1 5 | 2 6 | 3 7  hold consecutive layers\n"
            "  tp-pp       4  0 1 4 5 | 2 3 6 7      hold one replica of the model\n");
  EXPECT_EQ(Mesh({}, 1).table(), "mesh of 1 rank, order tp-cp-ep-dp-pp\n");
}

TEST(Mesh, TableOfALargeWorldIsShort) {
  const std::string table = Mesh({.tp = 8, .ep = 64, .etp = 1, .pp = 16}, 98'304).table();
  EXPECT_LT(table.size(), 2000U);
  EXPECT_THAT(table, HasSubstr("  tp          8  0-7 | .. | 98296-98303"));
  EXPECT_THAT(table, HasSubstr("  dp        768  0 8 .. 6136 | .. | 92167 92175 .. 98303"));
  EXPECT_THAT(table, HasSubstr("  ep         64  0-63 | .. | 98240-98303"));
  EXPECT_THAT(table, Not(HasSubstr("  etp")));
}

TEST(MakeRank, TakesItsPlaceOnEveryAxis) {
  const Mesh mesh({.tp = 2, .pp = 2}, 8);
  FakeCommunicators communicators(5, 8);
  const Rank rank =
      make_rank(mesh, communicators, {.device = c10::kCPU, .seed = 7, .sequence_parallel = true});
  EXPECT_EQ(rank.index, 5);
  EXPECT_EQ(rank.seed, 7U);
  EXPECT_TRUE(rank.sequence_parallel);
  EXPECT_TRUE(rank.tp.rank == 1 && rank.tp.size == 2 && rank.tp.comm->ranks() == (RankList{4, 5}));
  EXPECT_TRUE(rank.dp.rank == 0 && rank.dp.size == 2 && rank.dp.comm->ranks() == (RankList{5, 7}));
  EXPECT_TRUE(rank.pp.rank == 1 && rank.pp.size == 2 && rank.pp.comm->ranks() == (RankList{1, 5}));
  EXPECT_TRUE(rank.cp.rank == 0 && rank.cp.size == 1 && rank.cp.comm == nullptr);
  EXPECT_EQ(rank.dp_cp.comm, rank.dp.comm);
  EXPECT_THAT(rank.model.comm->ranks(), ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(rank.world.comm->size(), 8);
  EXPECT_THAT(communicators.made(), ElementsAre("tp", "dp", "pp", "tp-pp", "world"));
}

TEST(MakeRank, NeedsNoCommunicatorsForShapes) {
  const Rank rank = make_rank(Mesh({.tp = 4}, 4096), 4095);
  EXPECT_TRUE(rank.tp.rank == 3 && rank.tp.size == 4 && rank.tp.comm == nullptr);
  EXPECT_EQ(rank.dp.rank, 1023);
}

TEST(MakeRank, OneRankHasNoGroups) {
  FakeCommunicators communicators(0, 1);
  EXPECT_EQ(make_rank(Mesh({}, 1), communicators).world.size, 1);
  EXPECT_THAT(communicators.made(), IsEmpty());
}

}  // namespace
}  // namespace megatron
