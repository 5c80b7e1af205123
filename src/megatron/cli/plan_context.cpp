// Implements `megatron plan --show-context`, which draws the attention of a run's layers over the
// ranks of context parallelism, and simulates it.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/base/terminal.h"
#include "megatron/cli/command.h"
#include "megatron/config/context_layers.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/plan_options.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/training_config.h"
#include "megatron/schedules/draw_context.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxRanks = 128;

/// Layers with the same attention, and their simulated passes.
struct PlannedContextLayers {
  ContextLayers layers;
  std::array<ContextPass, 2> passes;
};

ContextSpeed speed_of(const PlanOptions& options) {
  return {.flops_per_s = options.attention_tflops * 1e12,
          .bytes_per_s = options.link_gbytes_per_s * 1e9,
          .latency_s = options.link_latency_us * 1e-6};
}

/// Checks what a run checks, as far as its attention depends on it, and adds the notes.
void check(const Settings& settings, Notes& notes) {
  Problems problems;
  const std::int64_t ranks = settings.parallel->context_parallel_size;
  if (ranks == 1)
    problems.add({"--show-context", "draws the ranks of --context-parallel-size, which is 1",
                  "add --context-parallel-size N"});
  if (ranks > kMaxRanks)
    problems.add({"--context-parallel-size", std::to_string(ranks) + " ranks are too many to draw",
                  "use at most " + std::to_string(kMaxRanks) + " with --show-context"});
  if (settings.parallel->hybrid_context_parallel)
    problems.add({"--show-context",
                  "draws sequences of one length, but --hybrid-context-parallel divides each "
                  "document by its own",
                  "leave --hybrid-context-parallel out"});
  if (settings.training->seq_length == 0)
    problems.add({"--seq-length", "is required", "add --seq-length N"});
  problems.add(evaluate(context_rules(), settings, {}));
  problems.add(validate_model(settings));
  add_notes(problems.notes(), notes);
  problems.throw_if_any();
}

std::string mask_text(const PositionMask& mask) {
  std::string text = "causal";
  if (mask.window[0] >= 0)
    text += ", window of " + std::to_string(mask.window[0] + 1) + " positions";
  if (mask.chunk > 0) text += ", chunks of " + std::to_string(mask.chunk) + " positions";
  return text;
}

/// Returns "0-3, 6": runs of numbers.
std::string numbers_text(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) text += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string title_of(const PlannedContextLayers& planned) {
  const ContextLayers& group = planned.layers;
  return "layers " + numbers_text(group.layers) + ": " + scalar_text(group.comm_type) + ", " +
         mask_text(group.attention.mask);
}

std::string ring_text(const ContextExchange& exchange) {
  const std::int64_t ring = exchange.ring_ranks();
  if (ring == 1) return "";
  std::string text = "  keys and values travel ";
  const std::int64_t shown = std::min<std::int64_t>(ring, 8);
  for (std::int64_t place = 0; place < shown; ++place)
    text += std::to_string(place * exchange.head_ranks) + " -> ";
  text += (shown < ring ? std::string("... -> 0") : std::string("0"));
  if (exchange.head_ranks > 1)
    text += ", and so for the other ranks of each group of " + std::to_string(exchange.head_ranks);
  return text + "\n";
}

std::string drawing(const std::vector<PlannedContextLayers>& all, const PlanOptions& options,
                    int width) {
  std::string text = draw_placement(all.front().layers.attention, width);
  for (const PlannedContextLayers& planned : all) {
    const ContextAttention& attention = planned.layers.attention;
    text += "\n" + title_of(planned) + "\n" + ring_text(attention.exchange) +
            draw_blocks(attention, width);
    for (const ContextPass& pass : planned.passes) text += "\n" + draw_pass(attention, pass, width);
  }
  return text + format(
                    "\nper layer and microbatch of %lld; a rank computes %g TFLOP/s "
                    "(--attention-tflops),\na link carries %g GB/s (--link-gbytes-per-s) after "
                    "%g us (--link-latency-us)\n",
                    static_cast<long long>(all.front().layers.attention.samples),
                    options.attention_tflops, options.link_gbytes_per_s, options.link_latency_us);
}

/// First position and the one after the last.
JsonText run_json(const PositionRun& run) { return JsonText::array({run.first, run.end()}); }

const char* name_of(ContextStepKind kind) {
  switch (kind) {
    case ContextStepKind::attention:
      return "attention";
    case ContextStepKind::send:
      return "send";
    case ContextStepKind::receive:
      return "receive";
    case ContextStepKind::wait_send:
      return "wait_send";
    case ContextStepKind::wait_receive:
      return "wait_receive";
    case ContextStepKind::collective:
      return "collective";
  }
  return "";
}

JsonText block_json(const AttentionBlock& block) {
  return {{"queries", run_json(block.queries)},
          {"keys", run_json(block.keys)},
          {"pairs", block.pairs},
          {"kind", block.pairs == 0  ? "skipped"
                   : block.is_full() ? "full"
                                     : "masked in part"}};
}

JsonText step_json(const ContextStep& step, const StepSpan& span) {
  JsonText json{{"kind", name_of(step.kind)}, {"ring_step", step.ring_step}};
  if (step.kind == ContextStepKind::attention) {
    json["keys_of"] = step.source;
    json["flops"] = step.flops;
    json["blocks"] = JsonText::array();
    for (const AttentionBlock& block : step.blocks) json["blocks"].push_back(block_json(block));
  } else {
    json["what"] = step.what;
    if (step.kind != ContextStepKind::collective) json["peer"] = step.peer;
    json["bytes"] = step.bytes;
  }
  json["begin_s"] = span.begin_s;
  json["end_s"] = span.end_s;
  return json;
}

JsonText pass_json(const ContextPass& pass) {
  JsonText ranks = JsonText::array();
  for (std::size_t rank = 0; rank < pass.steps.size(); ++rank) {
    JsonText steps = JsonText::array();
    for (std::size_t i = 0; i < pass.steps[rank].size(); ++i)
      steps.push_back(step_json(pass.steps[rank][i], pass.run.spans[rank][i]));
    ranks.push_back({{"rank", rank},
                     {"flops", pass.flops(rank)},
                     {"sent_bytes", pass.sent_bytes(rank)},
                     {"attention_s", pass.run.busy_s[rank]},
                     {"exposed_s", pass.run.exposed_s[rank]},
                     {"end_s", pass.run.end_s[rank]},
                     {"steps", std::move(steps)}});
  }
  return {{"imbalance", pass.imbalance()}, {"ranks", std::move(ranks)}};
}

/// Returns the positions of each rank, and for each kind of layer every step of both passes.
std::string context_json(const std::vector<PlannedContextLayers>& all) {
  const ContextAttention& first = all.front().layers.attention;
  JsonText ranks = JsonText::array(), layers = JsonText::array();
  std::int64_t rank = 0;
  for (const auto& runs : zigzag_runs(first.length, first.exchange.ranks)) {
    JsonText positions = JsonText::array();
    for (const PositionRun& run : runs) positions.push_back(run_json(run));
    ranks.push_back({{"rank", rank++}, {"positions", std::move(positions)}});
  }
  for (const PlannedContextLayers& planned : all) {
    const ContextAttention& attention = planned.layers.attention;
    JsonText group{
        {"layers", planned.layers.layers},
        {"cp_comm_type", scalar_text(planned.layers.comm_type)},
        {"causal", attention.mask.causal},
        {"window", JsonText::array({attention.mask.window[0], attention.mask.window[1]})}};
    for (const ContextPass& pass : planned.passes) group[pass.name] = pass_json(pass);
    layers.push_back(std::move(group));
  }
  return JsonText{{"context_parallel_size", first.exchange.ranks},
                  {"seq_length", first.length},
                  {"micro_batch_size", first.samples},
                  {"ranks", std::move(ranks)},
                  {"layers", std::move(layers)}}
             .dump() +
         "\n";
}

}  // namespace

int run_plan_context(std::span<const std::string> args) {
  PlanOptions options = read_plan(PlanMode::context, args);
  ParseResult& parsed = options.parsed;
  Settings& settings = options.run;
  Problems problems;
  translate_legacy_flags(settings, parsed, problems);
  problems.throw_if_any();
  if (settings.training->micro_batch_size == 0) settings.training->micro_batch_size = 1;
  resolve(settings);
  check(settings, parsed.notes);
  std::cerr << notes_text(parsed.notes);
  std::vector<PlannedContextLayers> all;
  for (ContextLayers& group : context_layers(settings)) {
    auto passes = context_passes(group.attention, speed_of(options));
    all.push_back({std::move(group), std::move(passes)});
  }
  std::cout << (options.json ? context_json(all)
                             : drawing(all, options, terminal_width(STDOUT_FILENO)));
  return 0;
}

}  // namespace megatron
