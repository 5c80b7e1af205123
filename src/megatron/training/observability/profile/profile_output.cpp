#include "megatron/training/observability/profile/profile_output.h"

#include <algorithm>
#include <map>

#include "megatron/base/format.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxTableRows = 30;
constexpr double kNanoseconds = 1e9, kMegabyte = 1024 * 1024;

struct ProfileRow {
  std::string name;
  double calls = 0, total_ns = 0, self_ns = 0, bytes = 0, flops = 0;
};

bool is_operator(const RecordedOp& op) {
  return op.kind == RecordedOp::Kind::op || op.kind == RecordedOp::Kind::backward;
}

/// Sums the entries that `wanted` accepts by name, sorted by descending `weight`.
std::vector<ProfileRow> rows_of(std::span<const RecordedOp> ops, bool (*wanted)(const RecordedOp&),
                                double ProfileRow::*weight) {
  std::map<std::string, ProfileRow> by_name;
  for (const RecordedOp& op : ops) {
    if (!wanted(op)) continue;
    ProfileRow& row = by_name[op.name];
    row.name = op.name;
    ++row.calls;
    row.total_ns += static_cast<double>(op.duration_ns);
    row.self_ns += static_cast<double>(op.self_ns);
    row.bytes += op.bytes;
    row.flops += op.flops;
  }
  std::vector<ProfileRow> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [weight](const ProfileRow& a, const ProfileRow& b) {
    return a.*weight > b.*weight;
  });
  return rows;
}

std::string roofline_text(const ProfileRow& row, const DevicePeak& peak) {
  const double by_flops = peak.flops_per_second > 0 ? row.flops / peak.flops_per_second : 0;
  const double by_bytes = peak.bytes_per_second > 0 ? row.bytes / peak.bytes_per_second : 0;
  if ((by_flops == 0 && by_bytes == 0) || row.self_ns == 0) return "-";
  const double fraction = std::max(by_flops, by_bytes) / (row.self_ns / kNanoseconds);
  if (by_bytes > by_flops && fraction > 1) return format("in cache: %.1fx memory", fraction);
  return format("%.0f%%", 100 * fraction) + (by_flops >= by_bytes ? " compute" : " memory");
}

/// Returns the C++ name of an autograd function without our namespaces.
std::string short_name(std::string name) {
  for (const char* noise : {"megatron::", "(anonymous namespace)::", "torch::autograd::"}) {
    for (auto at = name.find(noise); at != std::string::npos; at = name.find(noise))
      name.erase(at, std::char_traits<char>::length(noise));
  }
  constexpr std::string_view kNode = "CppNode<";
  if (name.starts_with(kNode) && name.ends_with('>')) {
    name.pop_back();
    name.erase(0, kNode.size());
  }
  constexpr std::size_t kWidth = 46;
  if (name.size() > kWidth) {
    name.resize(kWidth - 1);
    name += '~';
  }
  return name;
}

std::string overhead_line(const ProfileSummary& head, std::span<const RecordedOp> ops) {
  const double steps = static_cast<double>(head.num_steps);
  const auto operators = static_cast<double>(std::ranges::count_if(ops, is_operator));
  return format(
      "\n  per step %.1f operators ran and %.1f tensors were allocated, %.1f of them with new "
      "memory of the system; the C library's heap grew by "
      "%.2f MB",
      operators / steps, head.memory.tensors / steps, head.memory.system / steps,
      head.memory.heap_growth / steps / kMegabyte);
}

std::string operator_rows(const ProfileSummary& head, std::span<const RecordedOp> ops,
                          double step_ns) {
  const double steps = static_cast<double>(head.num_steps);
  std::string text = format("\n  %-46s %9s %10s %10s %7s %9s %9s  %s", "operator (per step)",
                            "calls", "total ms", "self ms", "share", "GB", "GFLOP", "of roofline");
  ProfileRow rest{.name = "others"};
  const auto line = [&](const ProfileRow& row, const std::string& roofline) {
    text += format("\n  %-46s %9.1f %10.2f %10.2f %6.1f%% %9.3f %9.3f  %s",
                   short_name(row.name).c_str(), row.calls / steps, row.total_ns / steps / 1e6,
                   row.self_ns / steps / 1e6, 100 * row.self_ns / std::max(step_ns, 1.0),
                   row.bytes / steps / 1e9, row.flops / steps / 1e9, roofline.c_str());
  };
  std::size_t count = 0;
  for (const ProfileRow& row : rows_of(ops, is_operator, &ProfileRow::self_ns)) {
    if (++count <= kMaxTableRows) {
      line(row, roofline_text(row, head.peak));
      continue;
    }
    rest.calls += row.calls, rest.total_ns += row.total_ns, rest.self_ns += row.self_ns,
        rest.bytes += row.bytes, rest.flops += row.flops;
  }
  if (rest.calls > 0) line(rest, "-");
  return text;
}

std::string range_rows(const ProfileSummary& head, std::span<const RecordedOp> ops,
                       double step_ns) {
  const double steps = static_cast<double>(head.num_steps);
  std::string text = format("\n  %-46s %9s %10s %10s %7s", "phase or module (per step)", "calls",
                            "total ms", "self ms", "share");
  std::size_t count = 0;
  for (const ProfileRow& row : rows_of(
           ops, [](const RecordedOp& op) { return !is_operator(op); }, &ProfileRow::total_ns)) {
    if (++count > kMaxTableRows) break;
    text += format("\n  %-46s %9.1f %10.2f %10.2f %6.1f%%", short_name(row.name).c_str(),
                   row.calls / steps, row.total_ns / steps / 1e6, row.self_ns / steps / 1e6,
                   100 * row.total_ns / std::max(step_ns, 1.0));
  }
  return text;
}

double step_time(std::span<const RecordedOp> ops) {
  double total = 0;
  for (const RecordedOp& op : ops)
    total += op.name == "step" && op.kind == RecordedOp::Kind::phase
                 ? static_cast<double>(op.duration_ns)
                 : 0;
  return total;
}

const char* category(RecordedOp::Kind kind) {
  switch (kind) {
    case RecordedOp::Kind::op:
      return "operator";
    case RecordedOp::Kind::backward:
      return "backward";
    case RecordedOp::Kind::module:
      return "module";
    case RecordedOp::Kind::phase:
      break;
  }
  return "phase";
}

}  // namespace

std::string profile_table(const ProfileSummary& head, std::span<const RecordedOp> ops) {
  const double steps_ns = step_time(ops);
  const std::string title = format(
      "profile of iterations %lld to %lld: %.2f ms a step while recorded; peak %.1f GFLOP/s, %.1f "
      "GB/s",
      static_cast<long long>(head.first_iteration),
      static_cast<long long>(head.first_iteration + head.num_steps - 1),
      steps_ns / static_cast<double>(head.num_steps) / 1e6, head.peak.flops_per_second / 1e9,
      head.peak.bytes_per_second / 1e9);
  return title + overhead_line(head, ops) + range_rows(head, ops, steps_ns) +
         operator_rows(head, ops, steps_ns);
}

TraceTrack trace_track(std::span<const RecordedOp> ops, int rank) {
  TraceTrack track{.process = rank, .process_name = "rank " + std::to_string(rank)};
  for (const RecordedOp& op : ops) {
    TraceSpan& span = track.spans.emplace_back(
        TraceSpan{short_name(op.name), category(op.kind), op.start_ns, op.duration_ns});
    if (op.bytes > 0) span.args.emplace_back("bytes", op.bytes);
    if (op.flops > 0) span.args.emplace_back("FLOPs", op.flops);
    if (!op.shapes.empty()) span.args.emplace_back("shapes", op.shapes);
  }
  return track;
}

}  // namespace megatron
