#include "megatron/config/deepspeed_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/config/field_values.h"

namespace megatron {
namespace {

/// What keys of DeepSpeed's file mean. Lists of words have spaces between them.
struct KeyRow {
  std::string_view paths;          ///< the keys on the way to each, with dots between them
  std::string_view settings = {};  ///< ours; none: a run does so anyway
  std::string_view values = {};    ///< theirs that the row is about, and no others; none: all
  std::string_view ours = {};      ///< our value, by theirs ($) and the learning rate (LR); "": $
  std::string_view absent = {};    ///< DeepSpeed's default where another one would count here
  std::string_view types = {};     ///< the "type" or "device" of the section; none: all
};

constexpr std::string_view kPower = "2^$", kShare = "LR*$", kRate = "optimizer.params.lr",
                           kCosine = "warmupcosinelr", kDecay = "warmupdecaylr",
                           kSchedulers = "warmuplr warmupdecaylr warmupcosinelr";

constexpr KeyRow kRows[] = {
    {"train_batch_size", "global_batch_size"},
    {"train_micro_batch_size_per_gpu", "micro_batch_size"},
    {"gradient_accumulation_steps", "gradient_accumulation_steps"},
    {"gradient_clipping", "clip_grad", "", "", "0"},
    {"steps_per_print", "log_interval"},
    {"wall_clock_breakdown", "timing_log_level", "true", "2"},
    {"wall_clock_breakdown amp compression_training curriculum_learning data_efficiency eigenvalue "
     "elasticity expert_parallel progressive_layer_drop quantize_training sparse_attention "
     "tensor_parallel torch_autocast fp16.consecutive_hysteresis "
     "fp16.fp16_master_weights_and_grads "
     "bf16.bf16_master_weights_and_grads bf16.bf16_optimizer_states zero_optimization.zenflow "
     "zero_optimization.zero_quantized_gradients zero_optimization.zero_quantized_weights "
     "zero_optimization.zero_quantized_nontrainable_weights optimizer.params.amsgrad "
     "optimizer.params.nesterov",
     "", "false"},
    {"gradient_allreduce_op", "", "mean"},
    {"sequence_parallel_size", "", "1"},
    {"fp16.enabled", "fp16", "true"},
    {"fp16.loss_scale", "loss_scale"},
    {"fp16.initial_scale_power", "initial_loss_scale", "", kPower, "16"},
    {"fp16.loss_scale_window", "loss_scale_window"},
    {"fp16.hysteresis", "hysteresis"},
    {"fp16.min_loss_scale", "min_loss_scale"},
    {"bf16.enabled bfloat16.enabled", "bf16", "true"},
    {"data_types.grad_accum_dtype", "accumulate_allreduce_grads_in_fp32", "fp32", "true"},
    {"data_types.grad_accum_dtype", "grad_reduce_in_bf16", "bf16", "true"},
    {"zero_optimization.stage", "zero_stage"},
    {"zero_optimization.overlap_comm", "overlap_grad_reduce"},
    {"zero_optimization.cpu_offload", "optimizer_cpu_offload"},
    {"zero_optimization.offload_optimizer.device", "optimizer_cpu_offload", "cpu nvme", "true"},
    {"zero_optimization.offload_optimizer.ratio", "optimizer_offload_fraction"},
    {"zero_optimization.offload_optimizer.pipeline_read", "overlap_cpu_optimizer_d2h_h2d"},
    {"zero_optimization.offload_param.device", "cpu_offloading cpu_offloading_weights", "cpu nvme",
     "true"},
    {"zero_optimization.offload_param.device", "cpu_offloading_activations", "cpu nvme", "false"},
    {"zero_optimization.offload_optimizer.nvme_path zero_optimization.offload_param.nvme_path",
     "offload_folder", "", "", "", "nvme"},
    {"optimizer.type", "optimizer", "adam adamw", "adam"},
    {"optimizer.type", "optimizer", "sgd", "sgd"},
    {kRate, "lr"},
    {"optimizer.params.betas.0", "adam_beta1"},
    {"optimizer.params.betas.1", "adam_beta2"},
    {"optimizer.params.eps", "adam_eps"},
    {"optimizer.params.weight_decay", "weight_decay", "", "", "0"},
    {"optimizer.params.momentum", "sgd_momentum", "", "", "0", "sgd"},
    {"optimizer.params.adam_w_mode optimizer.params.bias_correction", "", "true"},
    {"optimizer.params.dampening optimizer.params.max_grad_norm", "", "0"},
    {"scheduler.type", "lr_decay_style", "warmuplr", "constant"},
    {"scheduler.type", "lr_decay_style", kDecay, "linear"},
    {"scheduler.type", "lr_decay_style", kCosine, "cosine"},
    {"scheduler.params.warmup_type", "", "linear", "", "log", kSchedulers},
    {"scheduler.params.warmup_num_steps", "lr_warmup_iters", "", "", "1000", kSchedulers},
    {"scheduler.params.total_num_steps", "lr_decay_iters"},
    {"scheduler.params.warmup_min_lr", "lr_warmup_init"},
    {"scheduler.params.warmup_min_lr", "min_lr", "", "", "", kDecay},
    {"scheduler.params.warmup_max_lr", "lr", "", "", "", "warmuplr"},
    {"scheduler.params.warmup_max_lr", "lr", "", "", "0.001", kDecay},
    {"scheduler.params.warmup_min_ratio", "lr_warmup_init", "", kShare},
    {"scheduler.params.cos_min_ratio", "min_lr", "", kShare, "0.0001", kCosine},
};

/// A value in the file, or a section, which has none. "auto" and null are none either.
struct Leaf {
  std::optional<std::string> text = {};
  std::string type = {};
  const char* remark = "";
};
using Leaves = std::map<std::string, Leaf>;  ///< by path; "" is the whole

std::vector<std::string> words(std::string_view list) { return split_words(std::string(list)); }

bool has_word(std::string_view list, const std::string& word) {
  return std::ranges::count(words(list), word) > 0;
}

/// Returns a value as flags have it: 1e5 is 100000.
std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.is_structured() ? "{...}" : value.dump();
  const double number = value.get<double>();
  const bool is_whole = number == std::floor(number) && std::abs(number) < 1e15;
  return is_whole ? std::to_string(static_cast<std::int64_t>(number)) : number_text(number);
}

/// Returns whether a section is turned off. Types of numbers are off unless they are turned on.
bool is_off(const std::string& name, const Json& section) {
  const bool is_type = name == "fp16" || name == "bf16" || name == "bfloat16";
  const auto enabled = section.find("enabled"), device = section.find("device");
  return (enabled == section.end() ? is_type || section.empty() : *enabled == false) ||
         (device != section.end() && (device->is_null() || *device == "none"));
}

/// Adds a value; of a section with rows, those below it. `type` is that of the section around it.
void add_leaves(const std::string& path, const Json& value, std::string type, Leaves& leaves) {
  const std::string below = path.empty() ? "" : path + ".";
  const bool has_rows = std::ranges::any_of(kRows, [&](const KeyRow& row) {
    return (" " + std::string(row.paths)).find(" " + below) != std::string::npos;
  });
  const bool is_section = value.is_structured() && has_rows,
             is_given = !is_section && !value.is_null() && lower_case(value_text(value)) != "auto";
  for (const char* key : {"type", "device"})
    if (is_section && value.is_object() && value.contains(key))
      type = lower_case(value_text(value[key]));
  leaves[path] = {is_given ? std::optional(value_text(value)) : std::nullopt, type};
  if (is_section)
    for (const auto& [key, inner] : value.items())
      if (!key.starts_with('_') && !(inner.is_object() && is_off(key, inner)))
        add_leaves(below + key, inner, type, leaves);
}

/// Adds DeepSpeed's defaults to the sections that the file has.
void add_defaults(Leaves& leaves) {
  for (const KeyRow& row : kRows) {
    const std::string path(row.paths), top = path.substr(0, path.find('.'));
    const auto section = leaves.find(top == path ? "" : top);
    if (!row.absent.empty() && section != leaves.end() && !leaves.contains(path) &&
        (row.types.empty() || has_word(row.types, section->second.type)))
      leaves[path] = {std::string(row.absent), section->second.type, " (DeepSpeed's default)"};
  }
  // DeepSpeed makes one step of a batch if only its size is given.
  const auto is_given = [&](const char* path) {
    return leaves.contains(path) && leaves[path].text;
  };
  if (is_given("train_batch_size") && !is_given("train_micro_batch_size_per_gpu") &&
      !is_given("gradient_accumulation_steps"))
    leaves["gradient_accumulation_steps"] = {"1"};
}

/// Returns our value; nullopt for a share of a learning rate that is not known.
std::optional<std::string> our_value(std::string_view ours, const std::string& text,
                                     const Leaves& leaves) {
  if (ours == kPower) {
    const auto power = exact_number<int>(text);
    return power && *power < 128 ? number_text(std::ldexp(1.0, *power)) : text;
  }
  if (ours != kShare) return ours.empty() ? text : std::string(ours);
  const auto found = leaves.find(std::string(kRate));
  const auto share = float_value(text), rate = found == leaves.end()
                                                   ? std::nullopt
                                                   : float_value(found->second.text.value_or(""));
  return share && rate ? std::optional(number_text(*share * *rate)) : std::nullopt;
}

}  // namespace

std::vector<Assignment> read_deepspeed_config(const FieldIndex& index,
                                              const std::filesystem::path& path, Notes& notes,
                                              Problems& problems) {
  Leaves leaves;
  try {
    const Json json = parse_json_unique_keys(read_file(path), path.string());
    add_leaves("", JsonCursor(json, path.string()).object(), "", leaves);
    add_defaults(leaves);
  } catch (const UserError& error) {
    problems.add(error.parts());
  }
  std::vector<Assignment> assignments;
  for (const auto& [key, leaf] : leaves) {
    if (!leaf.text) continue;
    const std::string where = path.string() + ": " + key + leaf.remark;
    std::set<std::string> known, near;
    bool is_mapped = false;
    for (const KeyRow& row : kRows) {
      for (const std::string& other : words(row.paths))
        if (other != key && (is_misspelt(key, other) || other.starts_with(key + ".")))
          near.insert(other);
      if (!has_word(row.paths, key) || (!row.types.empty() && !has_word(row.types, leaf.type)))
        continue;
      for (const std::string& value : words(row.values)) known.insert(value);
      if (!row.values.empty() && !has_word(row.values, lower_case(*leaf.text))) continue;
      is_mapped = true;
      for (const std::string& setting : words(row.settings)) {
        const Field& field = *index.fields().find_name(setting);
        if (auto value = our_value(row.ours, *leaf.text, leaves))
          assignments.push_back({&field, {*value}, {Origin::Kind::file, where}, field.flag()});
        else
          problems.add({where, "is a share of " + std::string(kRate) + ", which is not given",
                        "write " + std::string(kRate) + " as a number"});
      }
    }
    if (is_mapped) continue;
    if (!known.empty())
      problems.add({where, "'" + *leaf.text + "' is not in this version",
                    "use " + joined_text(known, " or ") + ", or leave it out"});
    else if (!near.empty())
      problems.add({where, "unknown key", "did you mean " + *near.begin() + "?"});
    else
      notes["is not mapped: no setting here is its counterpart"].push_back(where);
  }
  return assignments;
}

}  // namespace megatron
