#include "megatron/parallel/failure/rank_dump.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxRanks = 1'000'000;
/// A rank has a dozen groups, few of which hold all ranks.
constexpr std::int64_t kMostGroupsOfAllRanks = 32;
constexpr std::string_view kPrefix = "rank-", kSuffix = ".json";

/// Returns the rank in the name of a dump.
std::optional<std::int64_t> rank_in(std::string_view name) {
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  return exact_number<std::int64_t>(name);
}

JsonText call_json(const CallRecord& call) {
  return {{"number", call.number},
          {"group", call.group},
          {"group_number", call.group_number},
          {"operation", name_of(call.operation)},
          {"axis", call.axis},
          {"what", call.what},
          {"layer", call.layer},
          {"type", call.type},
          {"shape", call.shape},
          {"uneven", call.is_uneven},
          {"awaited", call.is_awaited},
          {"peer", call.peer},
          {"entered", call.entered_s},
          {"left", call.left_s}};
}

/// Returns ranks as runs [first, count, stride], so that a group of thousands is one entry.
JsonText runs_json(const std::vector<std::int64_t>& ranks) {
  JsonText runs = JsonText::array();
  for (std::size_t begin = 0, end = 0; begin < ranks.size(); begin = end) {
    end = begin + 1;
    const std::int64_t stride = end < ranks.size() ? ranks[end] - ranks[begin] : 1;
    while (end < ranks.size() && ranks[end] - ranks[end - 1] == stride) ++end;
    runs.push_back(JsonText::array({ranks[begin], end - begin, stride}));
  }
  return runs;
}

JsonText dump_json(const RankDump& dump) {
  JsonText calls = JsonText::array(), groups = JsonText::object(), threads = JsonText::array();
  for (const CallRecord& call : dump.calls) calls.push_back(call_json(call));
  for (const auto& [group, members] : dump.groups)
    groups[group] = {{"axis", members.axis}, {"ranks", runs_json(members.ranks)}};
  for (const ThreadStack& thread : dump.threads)
    threads.push_back(
        {{"thread", thread.thread}, {"name", thread.name}, {"frames", thread.frames}});
  return {{"rank", dump.rank},          {"world_size", dump.world_size},
          {"host", dump.host},          {"process", dump.process},
          {"start", dump.start},        {"time", dump.time_s},
          {"state", dump.state},        {"on_device", dump.is_on_device},
          {"reason", dump.reason},      {"iteration", dump.wait.iteration},
          {"waits_in", dump.wait.call}, {"waits_for", dump.wait.missing},
          {"groups", groups},           {"calls", calls},
          {"threads", threads}};
}

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw UserError({source, what, "give a folder that ranks of one version of megatron wrote"});
}

template <class Value>
std::vector<Value> list_of(const JsonCursor& json) {
  try {
    return json->get<std::vector<Value>>();
  } catch (const Json::exception&) {
    refuse(json.name(), "is not a list of the expected type");
  }
}

/// Inverse of runs_json().
std::vector<std::int64_t> ranks_of(const JsonCursor& json, std::int64_t world_size) {
  std::vector<std::int64_t> ranks;
  for (const auto& run : list_of<std::vector<std::int64_t>>(json)) {
    const bool is_run = run.size() == 3 && run[0] >= 0 && run[0] < world_size && run[1] > 0 &&
                        run[2] > 0 && run[1] - 1 <= (world_size - 1 - run[0]) / run[2] &&
                        (ranks.empty() || run[0] > ranks.back());
    if (!is_run) refuse(json.name(), "has an entry that is not first, count and stride");
    for (std::int64_t i = 0; i < run[1]; ++i) ranks.push_back(run[0] + i * run[2]);
  }
  return ranks;
}

CallGroups read_groups(const JsonCursor& json, std::int64_t world_size, const std::string& source) {
  CallGroups found;
  std::int64_t num_ranks = 0;
  for (const auto& [group, value] : json.object().items()) {
    CallGroup& read = found[group];
    const JsonCursor members = json[group];
    read = {members["axis"].text(), ranks_of(members["ranks"], world_size)};
    num_ranks += static_cast<std::int64_t>(read.ranks.size());
    if (num_ranks > kMostGroupsOfAllRanks * world_size) refuse(source, "has too many groups");
  }
  return found;
}

CommOperation operation_of(const std::string& name, const std::string& source) {
  for (int i = 0; i <= static_cast<int>(CommOperation::recv); ++i) {
    const auto operation = static_cast<CommOperation>(i);
    if (name == name_of(operation)) return operation;
  }
  refuse(source, "has a call '" + name + "'");
}

CallRecord read_call(const JsonCursor& json, const std::string& source) {
  return {.number = static_cast<std::uint64_t>(json["number"].integer()),
          .group = json["group"].text(),
          .group_number = static_cast<std::uint64_t>(json["group_number"].integer()),
          .operation = operation_of(json["operation"].text(), source),
          .axis = json["axis"].text(),
          .what = json["what"].text(),
          .layer = json["layer"].text(),
          .type = json["type"].text(),
          .shape = list_of<std::int64_t>(json["shape"]),
          .is_uneven = json["uneven"].boolean(),
          .is_awaited = json["awaited"].boolean(),
          .peer = json["peer"].integer(),
          .entered_s = json["entered"].number(),
          .left_s = json["left"].number()};
}

}  // namespace

fs::path dump_path(const fs::path& folder, std::int64_t rank) {
  return folder / (std::string(kPrefix) + std::to_string(rank) + std::string(kSuffix));
}

void write_dump(const fs::path& path, const RankDump& dump) {
  megatron::create_directories(path.parent_path());
  write_file_atomically(path, dump_json(dump).dump(1) + "\n");
}

RankDump read_dump(const fs::path& path) {
  const std::string source = path.string();
  const JsonCursor json(read_json(path), source);
  RankDump dump{.rank = json["rank"].integer(),
                .world_size = json["world_size"].integer(),
                .host = json["host"].text(),
                .process = json["process"].integer(),
                .start = json["start"].text(),
                .time_s = json["time"].number(),
                .state = json["state"].text(),
                .is_on_device = json["on_device"].boolean(),
                .reason = json["reason"].text(),
                .wait = {.is_waiting = false,
                         .call = json["waits_in"].text(),
                         .missing = list_of<std::int64_t>(json["waits_for"]),
                         .iteration = json["iteration"].integer()},
                .calls = {},
                .groups = {},
                .threads = {}};
  if (dump.world_size < 1 || dump.world_size > kMaxRanks || dump.rank < 0 ||
      dump.rank >= dump.world_size)
    refuse(source, "is of rank " + std::to_string(dump.rank) + " of " +
                       std::to_string(dump.world_size) + " ranks");
  dump.wait.is_waiting = !dump.wait.call.empty();
  for (const JsonCursor& call : json["calls"].elements())
    dump.calls.push_back(read_call(call, source));
  for (const JsonCursor& thread : json["threads"].elements())
    dump.threads.push_back({thread["thread"].integer(), thread["name"].text(),
                            list_of<std::string>(thread["frames"])});
  dump.groups = read_groups(json["groups"], dump.world_size, source);
  return dump;
}

FolderDumps read_dumps(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw UserError({"the folder " + folder.string(),
                     fs::exists(folder) ? "is not a folder" : "does not exist",
                     "give the folder in which ranks wrote rank-<rank>.json (--hang-report-dir of "
                     "the run, or hang-reports in its --save)"});
  FolderDumps found;
  std::vector<RankDump>& dumps = found.dumps;
  std::set<std::pair<std::string, std::string>> groups;  // by start of the run
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    try {
      dumps.push_back(read_dump(entry.path()));
      RankDump& dump = dumps.back();  // each group is kept once
      std::erase_if(dump.groups, [&](const auto& group) {
        return !groups.emplace(dump.start, group.first).second;
      });
    } catch (const UserError& error) {
      found.problems.push_back(error.parts().problem());
      if (const auto rank = rank_in(name)) found.unreadable.push_back(*rank);
    }
  }
  std::ranges::sort(found.problems);
  std::ranges::sort(found.unreadable);
  if (dumps.empty() && !found.problems.empty())
    throw UserError({"the folder " + folder.string() + " has no report that can be read",
                     found.problems.front(), "send SIGUSR2 to the ranks again"});
  if (dumps.empty())
    throw UserError({"the folder " + folder.string(), "holds no file rank-<rank>.json",
                     "send SIGUSR2 to the ranks, or give the folder of a run that failed"});
  const std::string start = std::ranges::max_element(dumps, {}, &RankDump::time_s)->start;
  found.num_older = static_cast<std::int64_t>(
      std::erase_if(dumps, [&](const RankDump& dump) { return dump.start != start; }));
  std::ranges::sort(dumps, {}, &RankDump::rank);
  return found;
}

}  // namespace megatron
