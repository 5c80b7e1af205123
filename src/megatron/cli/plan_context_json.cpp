#include "megatron/cli/plan_context_json.h"

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/config/settings_enums.h"

namespace megatron {
namespace {

/// First position and the one after the last.
OrderedJson run_json(const PositionRun& run) { return OrderedJson::array({run.first, run.end()}); }

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

OrderedJson block_json(const AttentionBlock& block) {
  return {{"queries", run_json(block.queries)},
          {"keys", run_json(block.keys)},
          {"pairs", block.pairs},
          {"kind", block.pairs == 0  ? "skipped"
                   : block.is_full() ? "full"
                                     : "masked in part"}};
}

OrderedJson step_json(const ContextStep& step, const StepSpan& span) {
  OrderedJson json{{"kind", name_of(step.kind)}, {"ring_step", step.ring_step}};
  if (step.kind == ContextStepKind::attention) {
    json["keys_of"] = step.source;
    json["flops"] = step.flops;
    json["blocks"] = OrderedJson::array();
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

OrderedJson pass_json(const ContextPass& pass) {
  OrderedJson ranks = OrderedJson::array();
  for (std::size_t rank = 0; rank < pass.steps.size(); ++rank) {
    OrderedJson steps = OrderedJson::array();
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
  OrderedJson ranks = OrderedJson::array(), layers = OrderedJson::array();
  for (const auto& runs : zigzag_runs(first.length, first.exchange.ranks)) {
    OrderedJson positions = OrderedJson::array();
    for (const PositionRun& run : runs) positions.push_back(run_json(run));
    ranks.push_back({{"rank", ranks.size()}, {"positions", std::move(positions)}});
  }
  for (const PlannedContextLayers& planned : all) {
    const ContextAttention& attention = planned.layers.attention;
    OrderedJson group{{"layers", planned.layers.layers},
                      {"cp_comm_type", scalar_text(planned.layers.comm_type)},
                      {"causal", attention.mask.causal},
                      {"window", attention.mask.window}};
    for (const ContextPass& pass : planned.passes) group[pass.name] = pass_json(pass);
    layers.push_back(std::move(group));
  }
  return OrderedJson{{"context_parallel_size", first.exchange.ranks},
                     {"seq_length", first.length},
                     {"micro_batch_size", first.samples},
                     {"ranks", std::move(ranks)},
                     {"layers", std::move(layers)}}
             .dump() +
         "\n";
}

}  // namespace megatron
