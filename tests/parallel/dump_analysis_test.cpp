// The report of a hang must name the rank that blocks the others, in the call that it misses.
#include "megatron/parallel/failure/dump_analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kNow = 2e9;

CallRecord collective(std::uint64_t number, const std::string& what, bool is_done) {
  return {.number = number,
          .group = "dp",
          .group_number = number,
          .operation = CommOperation::all_reduce,
          .axis = "dp",
          .what = what,
          .layer = "decoder.layers.3",
          .type = "Float",
          .shape = {8, 4},
          .is_awaited = true,
          .entered_s = kNow - 20,
          .left_s = is_done ? kNow - 19 : 0};
}

CallRecord message(CommOperation operation, std::int64_t peer, bool is_done) {
  return {.number = 1,
          .group = "pp",
          .group_number = 1,
          .operation = operation,
          .axis = "pp",
          .what = "activations",
          .type = "Float",
          .shape = {8},
          .is_awaited = true,
          .peer = peer,
          .entered_s = kNow - 15,
          .left_s = is_done ? kNow - 14 : 0};
}

/// A rank that waits in its last call, if that is not complete.
RankDump dump(std::int64_t rank, std::int64_t world_size, std::vector<CallRecord> calls) {
  const bool waits = !calls.empty() && calls.back().left_s == 0;
  RankDump dump{.rank = rank,
                .world_size = world_size,
                .host = "node1",
                .process = 100 + rank,
                .start = "s",
                .time_s = kNow,
                .state = waits ? "waiting" : "running",
                .reason = "SIGUSR2"};
  dump.wait = {.is_waiting = waits, .call = waits ? "a call" : "", .missing = {}, .iteration = 12};
  dump.calls = std::move(calls);
  dump.groups = {{"dp", {"dp", {0, 1, 2, 3}}}, {"pp", {"pp", {0, 1}}}};
  for (auto& [group, members] : dump.groups)
    std::erase_if(members.ranks, [&](std::int64_t member) { return member >= world_size; });
  return dump;
}

TEST(DumpAnalysis, NamesTheRankThatMissesACall) {
  std::vector<RankDump> dumps;
  for (const std::int64_t rank : {0, 1, 3})
    dumps.push_back(
        dump(rank, 4, {collective(1, "gradients", true), collective(2, "grad norm", false)}));
  dumps.push_back(dump(2, 4, {collective(1, "gradients", true)}));
  const HangAnalysis found = analyze_dumps(dumps);
  ASSERT_THAT(found.blocked, SizeIs(1));
  EXPECT_THAT(found.blocked[0].waiting, ElementsAre(0, 1, 3));
  EXPECT_THAT(found.blocked[0].missing, ElementsAre(2));
  EXPECT_THAT(found.blocked[0].silent, IsEmpty());
  EXPECT_DOUBLE_EQ(found.blocked[0].waited_s, 20);
  EXPECT_THAT(found.culprits, ElementsAre(2));
  EXPECT_THAT(found.different, IsEmpty());
  const std::string text = hang_report_text(dumps, found);
  EXPECT_THAT(text, HasSubstr("all_reduce 'grad norm' on dp in decoder.layers.3, call 2 of the "
                              "group (ranks 0-3), Float [8, 4]:\n    ranks 0, 1, 3 waited 20.0 s "
                              "for rank 2\n"));
  EXPECT_THAT(text, HasSubstr("rank 2 blocks the others.\n  rank 2 on node1 (process 102) is "
                              "running, in iteration 12, after all_reduce 'gradients' on dp"));
}

/// Rank 0 waits for a message of rank 1, which waits in a collective for rank 2.
TEST(DumpAnalysis, FollowsWhoWaitsForWhom) {
  std::vector<RankDump> dumps{dump(0, 3, {message(CommOperation::recv, 1, false)}),
                              dump(1, 3, {collective(1, "weights", false)}), dump(2, 3, {})};
  dumps[1].groups["dp"].ranks = dumps[0].groups["dp"].ranks = dumps[2].groups["dp"].ranks = {1, 2};
  const HangAnalysis found = analyze_dumps(dumps);
  EXPECT_THAT(found.blocked, SizeIs(2));
  EXPECT_THAT(found.culprits, ElementsAre(2));
}

/// A receive that was posted early blocks nobody while its rank computes.
TEST(DumpAnalysis, ARunningRankIsNotBlockedByAnAsynchronousCall) {
  std::vector<RankDump> dumps{dump(0, 2, {message(CommOperation::recv, 1, false)}),
                              dump(1, 2, {message(CommOperation::recv, 0, false)})};
  dumps[1].calls[0].is_awaited = false;
  EXPECT_THAT(analyze_dumps(dumps).culprits, ElementsAre(1));
  dumps[1].is_on_device = true;  // where the host does not know whether the call is complete
  EXPECT_THAT(analyze_dumps(dumps).blocked, SizeIs(1));
  EXPECT_THAT(analyze_dumps(dumps).culprits, ElementsAre(1));
  dumps[1].calls[0].is_awaited = true;
  EXPECT_THAT(analyze_dumps(dumps).culprits, ElementsAre(0, 1));
}

TEST(DumpAnalysis, ADeadOrSilentRankBlocksOthers) {
  std::vector<RankDump> dumps{dump(0, 4, {collective(1, "weights", false)}),
                              dump(1, 4, {collective(1, "weights", false)}), dump(3, 4, {})};
  dumps[1].state = "dead";
  const HangAnalysis found = analyze_dumps(dumps);
  EXPECT_THAT(found.blocked.at(0).waiting, ElementsAre(0)) << "rank 1 died in the call";
  EXPECT_THAT(found.blocked.at(0).missing, ElementsAre(1, 3));
  EXPECT_THAT(found.blocked.at(0).silent, ElementsAre(2));
  EXPECT_THAT(found.without_dump, ElementsAre(2));
  EXPECT_THAT(found.culprits, ElementsAre(1)) << "the others are a consequence";
  EXPECT_THAT(hang_report_text(dumps, found),
              HasSubstr("rank 1 died; the others ended because of that.\n  rank 1 on node1"));
  dumps.erase(dumps.begin() + 1);
  EXPECT_THAT(analyze_dumps(dumps).culprits, ElementsAre(1, 2, 3));
  EXPECT_THAT(hang_report_text(dumps, analyze_dumps(dumps)), HasSubstr("rank 2 wrote no report"));
}

/// Every rank has begun the call, but one is stopped in the middle of it.
TEST(DumpAnalysis, ARankThatIsStoppedInACallBlocksIt) {
  std::vector<RankDump> dumps;
  for (const std::int64_t rank : {0, 1, 2, 3})
    dumps.push_back(dump(rank, 4, {collective(1, "weights", false)}));
  dumps[2].state = "stopped";
  const HangAnalysis found = analyze_dumps(dumps);
  EXPECT_THAT(found.blocked.at(0).waiting, ElementsAre(0, 1, 3));
  EXPECT_THAT(found.blocked.at(0).missing, ElementsAre(2));
  EXPECT_THAT(found.culprits, ElementsAre(2));
}

TEST(DumpAnalysis, FindsTheFirstDifferenceOfEachGroup) {
  const auto difference = [](const CallRecord& one, const CallRecord& other) {
    const std::vector<RankDump> dumps{dump(0, 2, {collective(1, "same", true), one}),
                                      dump(1, 2, {collective(1, "same", true), other})};
    const HangAnalysis found = analyze_dumps(dumps);
    return found.different.empty() ? "" : found.different[0].difference;
  };
  const CallRecord call = collective(2, "weights", false);
  CallRecord other = call;
  EXPECT_EQ(difference(call, other), "");
  other.operation = CommOperation::all_gather;
  EXPECT_EQ(difference(call, other), "operation");
  other = call;
  other.what = "gradients";
  EXPECT_EQ(difference(call, other), "name");
  other = call;
  other.type = "BFloat16";
  EXPECT_EQ(difference(call, other), "type");
  other = call;
  other.shape = {4, 8};
  EXPECT_EQ(difference(call, other), "") << "as many elements";
  other.shape = {9, 4};
  EXPECT_EQ(difference(call, other), "size");
  CallRecord uneven = call;
  uneven.is_uneven = other.is_uneven = true;
  EXPECT_EQ(difference(uneven, other), "");
}

TEST(DumpAnalysis, ComparesBothSidesOfAMessage) {
  std::vector<RankDump> dumps{dump(0, 2, {message(CommOperation::send, 1, true)}),
                              dump(1, 2, {message(CommOperation::recv, 0, false)})};
  EXPECT_THAT(analyze_dumps(dumps).different, IsEmpty());
  dumps[1].calls[0].shape = {9};
  ASSERT_THAT(analyze_dumps(dumps).different, SizeIs(1));
  EXPECT_EQ(analyze_dumps(dumps).different[0].difference, "size");
}

TEST(DumpAnalysis, ShortWaitsBelongToEveryStep) {
  std::vector<RankDump> dumps{dump(0, 2, {collective(1, "weights", false)}), dump(1, 2, {})};
  dumps[0].calls[0].entered_s = kNow - 0.5;
  const HangAnalysis found = analyze_dumps(dumps);
  EXPECT_THAT(found.blocked, IsEmpty());
  EXPECT_THAT(hang_report_text(dumps, found), HasSubstr("No rank waits longer than a second."));
}

TEST(RankDump, ReadsWhatItWrote) {
  const TemporaryFolder folder;
  RankDump written =
      dump(3, 4, {collective(1, "weights", true), message(CommOperation::recv, 1, false)});
  written.wait.missing = {1, 2};
  written.is_on_device = true;
  written.threads = {{7, "megatron", {"read", "main"}}};
  write_dump(dump_path(folder.path(), 3), written);
  const RankDump found = read_dump(dump_path(folder.path(), 3));
  write_dump(dump_path(folder.path(), 4), found);
  EXPECT_EQ(read_file(dump_path(folder.path(), 3)), read_file(dump_path(folder.path(), 4)));
  EXPECT_EQ(found.calls.at(1).peer, 1);
  EXPECT_EQ(found.calls.at(1).operation, CommOperation::recv);
  EXPECT_EQ(found.threads.at(0).frames.at(1), "main");
  EXPECT_EQ(found.groups.at("dp").ranks.size(), 4U);
  EXPECT_TRUE(found.is_on_device);
}

TEST(RankDump, GroupsOfThousandsAreRuns) {
  const TemporaryFolder folder;
  RankDump written = dump(3, 40'000, {});
  std::vector<std::int64_t> world, pipeline, expert{5, 6, 7, 105, 106, 107, 9'999};
  for (std::int64_t rank = 0; rank < written.world_size; ++rank) {
    world.push_back(rank);
    if (rank % 2'500 == 3) pipeline.push_back(rank);
  }
  written.groups = {
      {"a", {"world", world}}, {"b", {"pp", pipeline}}, {"c", {"ep", expert}}, {"d", {"tp", {3}}}};
  const auto path = dump_path(folder.path(), 3);
  write_dump(path, written);
  EXPECT_LT(read_file(path).size(), 2'000U);
  const RankDump found = read_dump(path);
  EXPECT_EQ(found.groups.at("a").ranks, world);
  EXPECT_EQ(found.groups.at("b").ranks, pipeline);
  EXPECT_EQ(found.groups.at("c").ranks, expert);
  EXPECT_THAT(found.groups.at("d").ranks, ElementsAre(3));
  written.rank = 4;
  write_dump(dump_path(folder.path(), 4), written);
  const FolderDumps all = read_dumps(folder.path());
  EXPECT_EQ(all.dumps.at(0).groups.size() + all.dumps.at(1).groups.size(), 4U);
}

TEST(RankDump, RunsOfRanksThatTheWorldDoesNotHaveAreRefused) {
  const TemporaryFolder folder;
  RankDump written = dump(0, 4, {});
  written.groups = {{"a", {"dp", {0, 1, 2, 3}}}};
  const auto path = dump_path(folder.path(), 0);
  write_dump(path, written);
  const std::string text = read_file(path), run = "0,\n     4,\n     1";
  ASSERT_THAT(text, HasSubstr(run));
  for (const char* bad : {"0, 5, 1", "1, 4, 1", "0, 3, 2", "0, 4, 0", "-1, 2, 1", "0, 0, 1",
                          "4, 1, 1", "0, 4", "0, 9223372036854775807, 9223372036854775807"}) {
    std::string changed = text;
    changed.replace(changed.find(run), run.size(), bad);
    folder.write("rank-0.json", changed);
    EXPECT_THROW(read_dump(path), UserError) << bad;
  }
}

TEST(RankDump, FilesOfAnEarlierStartAreLeftOut) {
  const TemporaryFolder folder;
  RankDump old = dump(0, 2, {}), recent = dump(1, 2, {});
  old.start = "earlier";
  old.time_s = kNow - 100;
  write_dump(dump_path(folder.path(), 0), old);
  write_dump(dump_path(folder.path(), 1), recent);
  const FolderDumps found = read_dumps(folder.path());
  ASSERT_THAT(found.dumps, SizeIs(1));
  EXPECT_EQ(found.dumps[0].rank, 1);
  EXPECT_EQ(found.num_older, 1);
  EXPECT_THAT(found.problems, IsEmpty());
}

TEST(RankDump, ABrokenFileHidesNoOtherAndBlamesNobody) {
  const TemporaryFolder folder;
  for (const std::int64_t rank : {0, 2, 3})
    write_dump(dump_path(folder.path(), rank), dump(rank, 4, {collective(1, "weights", false)}));
  EXPECT_THAT(analyze_dumps(read_dumps(folder.path()).dumps).culprits, ElementsAre(1));
  folder.write("rank-1.json", "{\"rank\": 1");
  const FolderDumps found = read_dumps(folder.path());
  EXPECT_THAT(found.dumps, SizeIs(3));
  ASSERT_THAT(found.problems, SizeIs(1));
  EXPECT_THAT(found.problems[0], HasSubstr("rank-1.json"));
  const HangAnalysis analysis = analyze_dumps(found.dumps, found.unreadable);
  EXPECT_THAT(analysis.culprits, IsEmpty());
  EXPECT_THAT(analysis.unreadable, ElementsAre(1));
  const std::string text = hang_report_text(found.dumps, analysis);
  EXPECT_THAT(text, HasSubstr("What rank 1 did is unknown"));
  EXPECT_THAT(text, HasSubstr("; whether rank 1 has made the call is unknown\n"));
  EXPECT_THAT(text, HasSubstr("The others may wait for rank 1, whose report cannot be read.\n"));
}

TEST(RankDump, BrokenFilesAreRefusedByName) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_dumps(folder.path() / "absent"), UserError);
  EXPECT_THROW(read_dumps(folder.path()), UserError);
  const fs::path path = dump_path(folder.path(), 0);
  write_dump(path, dump(0, 2, {collective(1, "weights", false)}));
  const std::string whole = read_file(path);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text = whole;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int change = 0; change < changes; ++change) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, 1 + random() % 20);
    }
    write_file(path, text);
    try {
      const std::vector<RankDump> dumps{read_dump(path)};
      hang_report_json(dumps, analyze_dumps(dumps));
      hang_report_text(dumps, analyze_dumps(dumps));
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank-0.json")) << text;
    }
  }
}

}  // namespace
}  // namespace megatron
