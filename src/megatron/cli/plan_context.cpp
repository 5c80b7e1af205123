// Implements `megatron plan --show-context`, which draws the attention of a run's layers over the
// ranks of context parallelism, and simulates it.
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/terminal.h"
#include "megatron/cli/command.h"
#include "megatron/cli/context_plan_fields.h"
#include "megatron/cli/plan_context_json.h"
#include "megatron/config/field_table.h"
#include "megatron/config/legacy_flags.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/plan_run_fields.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

constexpr std::int64_t kMaxRanks = 128;

struct ContextPlanOptions {
  bool show_context = false, json = false;
  std::string svg, trace;
  double attention_tflops = kAttentionTflops, link_gbytes_per_s = kLinkGbytesPerS,
         link_latency_us = kLinkLatencyUs;
  std::string model = "gpt";
  Settings run;

  ContextSpeed speed() const {
    return {.flops_per_s = attention_tflops * 1e12,
            .bytes_per_s = link_gbytes_per_s * 1e9,
            .latency_s = link_latency_us * 1e-6};
  }
};

const FieldTable<ContextPlanOptions>& context_plan_table() {
  using Options = ContextPlanOptions;
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    add_context_plan_fields(t);
    t.field("json", &Options::json, "print every step with its times as JSON");
    t.field("svg", &Options::svg, "write the drawing to this SVG file too");
    t.field("trace", &Options::trace, "write a trace for ui.perfetto.dev to this file too");
    add_plan_run_fields(t);
    return t;
  }();
  return table;
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

std::string drawing(const std::vector<PlannedContextLayers>& all, const ContextPlanOptions& options,
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

std::string svg_of(const std::vector<PlannedContextLayers>& all) {
  std::vector<TitledPass> passes;
  for (const PlannedContextLayers& planned : all) {
    for (const ContextPass& pass : planned.passes) passes.push_back({title_of(planned), &pass});
  }
  return draw_context_svg(passes);
}

/// Returns the passes of all kinds of layers, one after another.
std::string trace_of(const std::vector<PlannedContextLayers>& all) {
  std::vector<TraceTrack> tracks;
  double begin_s = 0;
  for (const PlannedContextLayers& planned : all) {
    for (const ContextPass& pass : planned.passes) {
      const auto more = context_tracks(pass, title_of(planned), begin_s);
      if (tracks.empty()) {
        tracks = more;
      } else {
        for (std::size_t rank = 0; rank < tracks.size(); ++rank)
          tracks[rank].spans.insert(tracks[rank].spans.end(), more[rank].spans.begin(),
                                    more[rank].spans.end());
      }
      begin_s += pass.run.makespan_s();
    }
  }
  return trace_json(tracks);
}

}  // namespace

int run_plan_context(std::span<const std::string> args) {
  ContextPlanOptions options;
  ParseResult parsed = parse_command_line(context_plan_table(), args, options, "plan");
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
    auto passes = context_passes(group.attention, options.speed());
    all.push_back({std::move(group), std::move(passes)});
  }
  if (!options.svg.empty()) write_file_atomically(options.svg, svg_of(all));
  if (!options.trace.empty()) write_file_atomically(options.trace, trace_of(all));
  std::cout << (options.json ? context_json(all)
                             : drawing(all, options, terminal_width(STDOUT_FILENO)));
  return 0;
}

}  // namespace megatron
