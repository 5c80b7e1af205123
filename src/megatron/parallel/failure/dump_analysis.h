// Merges the dumps of the ranks (rank_dump.h) and finds out which rank blocks which others, and
// where ranks make different calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/parallel/failure/rank_dump.h"

namespace megatron {

/// A call that some ranks have made and others have not.
struct BlockedCall {
  CallRecord call;  ///< as one of the waiting ranks made it
  CallGroup group;
  std::vector<std::int64_t> waiting;  ///< ranks that made the call, which is not complete
  std::vector<std::int64_t> missing;  ///< ranks of the group whose dump shows no such call
  std::vector<std::int64_t> silent;   ///< ranks of the group without a dump
  std::vector<std::int64_t> unknown;  ///< ranks of the group whose dump cannot be read
  double waited_s = 0;                ///< the longest wait
};

/// Two ranks whose calls have the same number in a group and differ.
struct DifferentCalls {
  CallGroup group;
  std::int64_t rank = 0, other_rank = 0;
  CallRecord call, other;
  std::string difference;  ///< "operation", "name", "type", "root" or "size"
};

struct HangAnalysis {
  std::vector<BlockedCall> blocked;       ///< oldest first
  std::vector<DifferentCalls> different;  ///< the first of each group
  std::vector<std::int64_t> dead;
  /// The dead ranks. Without any: ranks that block others and are not blocked themselves; all
  /// blocked ones if there are none.
  std::vector<std::int64_t> culprits;
  std::vector<std::int64_t> without_dump;
  std::vector<std::int64_t> unreadable;  ///< ranks with a dump that cannot be read; their state
                                         ///< is unknown
};

/// `unreadable` are the ranks whose dumps are not among `dumps` because they cannot be read.
HangAnalysis analyze_dumps(const std::vector<RankDump>& dumps,
                           std::vector<std::int64_t> unreadable = {});

/// Returns the report that `megatron hang-report` prints.
std::string hang_report_text(const std::vector<RankDump>& dumps, const HangAnalysis& analysis);
/// Returns the same as one line of JSON.
std::string hang_report_json(const std::vector<RankDump>& dumps, const HangAnalysis& analysis);

}  // namespace megatron
