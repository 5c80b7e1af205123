// A rule on several settings, and the lists of all rules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/validate_settings.h"

namespace megatron {

struct Settings;

/// A condition on settings with its error message. It is skipped if one of its fields could not be
/// read.
struct Rule {
  std::vector<std::string_view> fields;
  bool (*is_violated)(const Settings& settings);
  UserError::Parts (*message)(const Settings& settings);
};

inline std::string text_of(std::int64_t value) { return std::to_string(value); }

/// The message of a rule that `flag` is given without `needed`, on which it depends.
inline UserError::Parts needs_flag(const std::string& flag, const std::string& needed) {
  return {flag, "has no effect without " + needed, "add " + needed + ", or leave " + flag + " out"};
}

/// Rules on batches and on the length of a run (batch_rules.cpp).
const std::vector<Rule>& batch_rules();
/// Rules on --blend-schedule (batch_rules.cpp), a part of batch_rules().
const std::vector<Rule>& blend_schedule_rules();
/// Rules on validation: sets, batches and intervals (evaluation_rules.cpp).
const std::vector<Rule>& evaluation_rules();
/// Rules on saving, keeping and loading checkpoints (checkpoint_rules.cpp).
const std::vector<Rule>& checkpoint_rules();
/// Rules between the parallel flags, and the limits of this version (parallel_rules.cpp).
const std::vector<Rule>& parallel_rules();
/// Rules on what data-parallel ranks divide among them (zero_rules.cpp).
const std::vector<Rule>& zero_rules();
/// Rules between context parallelism and the sequence (context_rules.cpp).
const std::vector<Rule>& context_rules();
/// Rules that the architecture fits context parallelism (context_rules.cpp).
const std::vector<Rule>& context_sharding_rules();
/// Rules on --fim-data, --document-packing-strategy and --sft (sample_rules.cpp).
const std::vector<Rule>& fim_rules();
const std::vector<Rule>& document_packing_rules();
const std::vector<Rule>& document_attention_rules();
const std::vector<Rule>& sft_rules();
/// Rules on --hybrid-context-parallel (hybrid_context_rules.cpp).
const std::vector<Rule>& hybrid_context_rules();
/// Rules on recomputation, offload and a memory budget (memory_rules.cpp).
const std::vector<Rule>& memory_rules();
/// Rules on offload (offload_rules.cpp), a part of memory_rules().
const std::vector<Rule>& offload_rules();
/// Rules on --memory-budget and --activation-plan (memory_budget_rules.cpp), a part of
/// memory_rules().
const std::vector<Rule>& memory_budget_rules();
/// Rules that the recomputed and offloaded parts exist in the architecture (memory_rules.cpp).
const std::vector<Rule>& recomputed_module_rules();
/// Rules on the optimizer and on the offload of its state (optimizer_rules.cpp).
const std::vector<Rule>& optimizer_settings_rules();
/// Rules on section timeouts (fault_tolerance_rules.cpp).
const std::vector<Rule>& fault_tolerance_rules();
/// Rules between the pipeline flags (pipeline_rules.cpp).
const std::vector<Rule>& pipeline_rules();
/// Rules that the layers fit the pipeline (pipeline_rules.cpp).
const std::vector<Rule>& layout_rules();
/// Rules that the architecture fits the degrees of parallelism (parallel_rules.cpp).
const std::vector<Rule>& sharding_rules();

/// Rules on the experts and their parallelism, and router_rules() (moe_rules.cpp).
const std::vector<Rule>& moe_rules();
/// Rules on the router of the experts (router_rules.cpp).
const std::vector<Rule>& router_rules();

/// Returns "8 or 12", the multiples of `unit` next to `size`.
std::string multiples_near(std::int64_t size, std::int64_t unit);

/// Returns the message that `size`, the value of `flag`, is no multiple of `unit`, the value of
/// `unit_flag`, with the nearest values that fit.
UserError::Parts indivisible(const std::string& flag, std::int64_t size,
                             const std::string& unit_flag, std::int64_t unit);

/// Evaluates every rule and returns a problem for each one that is violated.
Problems evaluate(const std::vector<Rule>& rules, const Settings& settings, const FieldNames& skip);

}  // namespace megatron
