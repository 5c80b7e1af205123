#include "megatron/cli/plan_context_json.h"

#include "megatron/base/json_text.h"
#include "megatron/config/settings_enums.h"

namespace megatron {
namespace {

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

}  // namespace

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

}  // namespace megatron
