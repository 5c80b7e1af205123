#include "megatron/schedules/draw_context.h"

#include <algorithm>

#include "megatron/base/format.h"

namespace megatron {
namespace {

constexpr double kMs = 1e3, kGiga = 1e9;
constexpr int kCell = 5, kRankCell = 11;

/// Returns "1.05 MB", in powers of 1000.
std::string bytes_text(double bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return format("%.4g %s", bytes, kUnits[unit]);
}

long long wide(std::int64_t number) { return static_cast<long long>(number); }

/// Rank of cp that holds a chunk.
std::int64_t rank_of_chunk(std::int64_t chunk, std::int64_t ranks) {
  return std::min(chunk, 2 * ranks - 1 - chunk);
}

std::string note_too_wide(const std::string& what) {
  return "  (" + what + " does not fit the width; --json has it)\n";
}

/// How a block of queries and keys is drawn.
std::string block_text(const PositionRun& queries, const PositionRun& keys,
                       const PositionMask& mask, std::int64_t step) {
  if (!sees(queries, keys, {.causal = mask.causal})) return "·";
  if (!sees(queries, keys, mask)) return "-";
  const bool is_full = visible_pairs(queries, keys, mask) ==
                       static_cast<double>(queries.count) * static_cast<double>(keys.count);
  return std::to_string(step) + (is_full ? "" : "◣");
}

/// Pads text of `columns` columns on the left. printf counts bytes.
std::string padded(const std::string& text, int columns, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - columns)), ' ') + text;
}

std::string row_of_blocks(const ContextAttention& attention, const RunsOfRanks& runs,
                          std::int64_t query_chunk, std::int64_t ranks) {
  const ContextExchange& exchange = attention.exchange;
  const auto place = [&](std::int64_t chunk) {
    return rank_of_chunk(chunk, ranks) / exchange.head_ranks;
  };
  const auto run_of = [&](std::int64_t chunk) {
    const auto& own = runs[static_cast<std::size_t>(rank_of_chunk(chunk, ranks))];
    return chunk < ranks ? own.front() : own.back();
  };
  std::string text;
  const std::int64_t rings = exchange.ring_ranks();
  for (std::int64_t keys = 0; keys < 2 * ranks; ++keys) {
    const std::int64_t step = (place(query_chunk) - place(keys) + rings) % rings;
    const std::string cell = block_text(run_of(query_chunk), run_of(keys), attention.mask, step);
    const bool is_number = cell.front() >= '0' && cell.front() <= '9';
    const auto digits = static_cast<int>(is_number ? std::to_string(step).size() : 1);
    // A partly masked block has one more column, which stands in the gap to the next one.
    const bool is_partial = is_number && static_cast<int>(cell.size()) > digits;
    text += padded(cell, digits, kCell - 1) + (is_partial ? "" : " ");
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

/// Returns the attention of a rank in a step of the ring.
const ContextStep& attention_in(const std::vector<ContextStep>& steps, std::int64_t ring_step) {
  return *std::ranges::find_if(steps, [&](const ContextStep& step) {
    return step.kind == ContextStepKind::attention && step.ring_step == ring_step;
  });
}

/// Returns what a rank posts to the next one in a step of the ring: "keys and values 1.05 MB".
std::string messages_in(const std::vector<ContextStep>& steps, std::int64_t ring_step) {
  std::string text;
  for (const ContextStep& step : steps) {
    if (step.kind == ContextStepKind::send && step.ring_step == ring_step)
      text += (text.empty() ? "" : ", ") + step.what + " " + bytes_text(step.bytes);
  }
  return text;
}

/// Returns "3: 0.2013": whose keys a rank has in a step, and its GFLOP.
std::string work_text(const ContextStep& step) {
  return format("%lld: %.4g", wide(step.source), step.flops / kGiga);
}

std::string ring_table(const ContextAttention& attention, const ContextPass& pass, int width) {
  const std::int64_t rings = attention.exchange.ring_ranks(), each = attention.exchange.head_ranks;
  int cell = kRankCell;
  for (const std::vector<ContextStep>& steps : pass.steps)
    for (const ContextStep& step : steps)
      if (step.kind == ContextStepKind::attention)
        cell = std::max(cell, static_cast<int>(work_text(step).size()) + 2);
  const bool fits = 8 + rings * cell + 30 <= width;
  std::string text = format("  %4s", "step");
  for (std::int64_t place = 0; fits && place < rings; ++place)
    text +=
        format("%*s", cell, format("%s %lld", each > 1 ? "group" : "rank", wide(place)).c_str());
  if (!fits) text += format("%11s %12s", "least", "most GFLOP");
  text +=
      each > 1 ? "  a rank of each group sends to the next\n" : "  each rank sends to the next\n";
  for (std::int64_t step = 0; step < rings; ++step) {
    text += format("  %4lld", wide(step));
    std::vector<double> work;
    for (std::int64_t place = 0; place < rings; ++place) {
      const ContextStep& own =
          attention_in(pass.steps[static_cast<std::size_t>(place * each)], step);
      work.push_back(own.flops / kGiga);
      if (fits) text += format("%*s", cell, work_text(own).c_str());
    }
    const auto [least, most] = std::ranges::minmax(work);
    if (!fits) text += format("%11.4g %12.4g", least, most);
    const std::string sent = messages_in(pass.steps.front(), step);
    text += "  " + (sent.empty() ? "-" : sent) + "\n";
  }
  return text;
}

std::string collectives_of(const ContextPass& pass) {
  std::string text;
  bool is_after = false;
  for (const ContextStep& step : pass.steps.front()) {
    is_after |= step.kind == ContextStepKind::attention;
    if (step.kind != ContextStepKind::collective) continue;
    text +=
        format("  %s attention: %s, each rank sends %s to the others of its group\n",
               is_after ? "after" : "before", step.what.c_str(), bytes_text(step.bytes).c_str());
  }
  return text;
}

std::string totals_of(const ContextPass& pass, int max_ranks) {
  std::string text = format("  %4s %10s %12s %14s %11s %9s\n", "rank", "GFLOP", "sent",
                            "attention ms", "exposed ms", "end ms");
  const auto row = [&](std::size_t rank) {
    text += format("  %4zu %10.4g %12s %14.4g %11.4g %9.4g\n", rank, pass.flops(rank) / kGiga,
                   bytes_text(pass.sent_bytes(rank)).c_str(), pass.run.busy_s[rank] * kMs,
                   pass.run.exposed_s[rank] * kMs, pass.run.end_s[rank] * kMs);
  };
  const std::size_t shown = std::min(pass.steps.size(), static_cast<std::size_t>(max_ranks));
  for (std::size_t rank = 0; rank < shown; ++rank) row(rank);
  if (shown < pass.steps.size())
    text += format("  and %zu more ranks\n", pass.steps.size() - shown);
  return text +
         format("  the busiest rank computes %.2f %% more than the mean\n", 100 * pass.imbalance());
}

}  // namespace

double ContextPass::flops(std::size_t rank) const {
  double sum = 0;
  for (const ContextStep& step : steps[rank]) sum += step.flops;
  return sum;
}

double ContextPass::sent_bytes(std::size_t rank) const {
  double sum = 0;
  for (const ContextStep& step : steps[rank]) {
    if (step.kind == ContextStepKind::send || step.kind == ContextStepKind::collective)
      sum += step.bytes;
  }
  return sum;
}

double ContextPass::imbalance() const {
  double sum = 0, most = 0;
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    sum += flops(rank);
    most = std::max(most, flops(rank));
  }
  return most * static_cast<double>(steps.size()) / sum - 1;
}

std::array<ContextPass, 2> context_passes(const ContextAttention& attention,
                                          const ContextSpeed& speed) {
  const auto pass = [&](const char* name, ContextSteps steps) {
    ContextSimulation run =
        simulate(steps, attention.exchange, attention_seconds(steps, speed.flops_per_s), speed);
    return ContextPass{name, std::move(steps), std::move(run)};
  };
  return {pass("forward", forward_steps(attention)), pass("backward", backward_steps(attention))};
}

std::string draw_placement(const ContextAttention& attention, int width) {
  const std::int64_t ranks = attention.exchange.ranks, chunk = attention.length / (2 * ranks);
  std::string text =
      format("context parallelism: %lld ranks, %lld positions in %lld chunks of %lld\n",
             wide(ranks), wide(attention.length), wide(2 * ranks), wide(chunk));
  const std::int64_t in_row = std::max<std::int64_t>(1, (width - 8) / kCell);
  for (std::int64_t from = 0; from < 2 * ranks; from += in_row) {
    const std::int64_t to = std::min(from + in_row, 2 * ranks);
    text += "\n  chunk";
    for (std::int64_t i = from; i < to; ++i) text += format("%*lld", kCell, wide(i));
    text += "\n  rank ";
    for (std::int64_t i = from; i < to; ++i)
      text += format("%*lld", kCell, wide(rank_of_chunk(i, ranks)));
    text += "\n";
  }
  return text;
}

std::string draw_blocks(const ContextAttention& attention, int width) {
  const ContextExchange& exchange = attention.exchange;
  if (exchange.ring_ranks() == 1) return "";
  const std::int64_t ranks = exchange.ranks;
  if (16 + 2 * ranks * kCell > width) return note_too_wide("the drawing of the blocks");
  std::string text = "  in which step a block is computed: ◣ masked in part, · causality hides it";
  if (attention.mask.window != std::array<std::int64_t, 2>{-1, -1}) text += ", - the window does";
  if (attention.mask.chunk > 0) text += ", - the chunks do";
  text += "\n  queries  keys:";
  for (std::int64_t keys = 0; keys < 2 * ranks; ++keys)
    text += format("%*lld%s", kCell - 1, wide(keys), keys + 1 < 2 * ranks ? " " : "\n");
  const RunsOfRanks runs = zigzag_runs(attention.length, ranks);
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (const std::int64_t chunk : {rank, 2 * ranks - 1 - rank})
      text += format("  rank %-3lld %4lld ", wide(rank), wide(chunk)) +
              row_of_blocks(attention, runs, chunk, ranks) + "\n";
  }
  return text;
}

std::string draw_pass(const ContextAttention& attention, const ContextPass& pass, int width) {
  const bool is_ring = attention.exchange.ring_ranks() > 1;
  std::string text = " " + pass.name;
  if (is_ring)
    text += std::string(", GFLOP of each step (") +
            (attention.exchange.head_ranks > 1 ? "group" : "rank") + " whose keys: GFLOP)";
  text += "\n" + collectives_of(pass);
  if (is_ring) text += ring_table(attention, pass, width);
  return text + totals_of(pass, 16);
}

}  // namespace megatron
