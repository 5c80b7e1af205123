#include "megatron/training/resilience/diagnosis/replay.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/slice_math.h"
#include "megatron/models/architecture.h"
#include "megatron/models/model_family.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/resilience/diagnosis/explanation.h"

namespace megatron {
namespace {

c10::ScalarType compute_type(const std::string& precision) {
  if (precision == "bf16") return c10::kBFloat16;
  return precision == "fp16" ? c10::kHalf : c10::kFloat;
}

/// Returns --load, else the place where the run saved its weights; nullopt for the initial weights
/// of a run that started from scratch.
std::optional<CheckpointSource> find_weights(const ReplayOptions& options,
                                             const SavedBatch& batch) {
  if (options.load.empty() && batch.checkpoint_iteration < 0)
    throw UserError({options.file + ": the run saved no checkpoint of its weights", "",
                     "give --load DIR, the nearest checkpoint of the run"});
  if (options.load.empty() && batch.checkpoint_root.empty()) return std::nullopt;
  const bool is_given = !options.load.empty();
  const std::string& root = is_given ? options.load : batch.checkpoint_root;
  const auto step = is_given ? options.ckpt_step : std::optional(batch.checkpoint_iteration);
  auto source = find_checkpoint(root, step, is_given ? "--load " : "");
  if (source) return source;
  throw UserError({is_given ? "--load " + root : options.file + ": its weights in " + root,
                   "no checkpoint there", "give --load DIR, a checkpoint of the run"});
}

void check_model(const CheckpointSource& source, const SavedBatch& batch) {
  const auto differences = forward_differences(source.model, batch.model);
  if (differences.empty()) return;
  throw UserError({"the checkpoint in " + source.folder.string() + " holds another model: " +
                       differences[0].member + " is " + differences[0].left,
                   "the saved batch is of a model with " + differences[0].right,
                   "give --load a checkpoint of the same run"});
}

/// Loads the weights and returns a description of their origin.
std::string fill_weights(Replay& replay, const ReplayOptions& options) {
  const auto source = find_weights(options, replay.batch);
  if (!source) {
    replay.weights->initialize(replay.batch.seed);
    return "drawn from seed " + std::to_string(replay.batch.seed) + ", as the run did";
  }
  check_model(*source, replay.batch);
  load_weights(*source, *replay.weights);
  std::string text = source->folder.string();
  const std::int64_t wanted = replay.batch.iteration - 1;
  if (!source->is_release && source->iteration != wanted)
    text += format(" (the run had those of iteration %lld: numbers may differ)",
                   static_cast<long long>(wanted));
  return text;
}

/// Formats the root mean square and maximum of the finite elements; dashes when unknown or when
/// none is finite.
std::string cells(const std::optional<TensorStatistics>& statistics) {
  const bool has_numbers =
      statistics && statistics->num_nan + statistics->num_inf < statistics->num_elements();
  return has_numbers ? format("%10.3g %10.3g", statistics->rms, statistics->max_abs)
                     : format("%10s %10s", "-", "-");
}

std::string counts(const TensorStatistics& statistics, const char* of) {
  if (statistics.finite()) return {};
  return format("  %s: %lld NaN, %lld Inf", of, static_cast<long long>(statistics.num_nan),
                static_cast<long long>(statistics.num_inf));
}

std::string loss_text(double loss) {
  if (std::isnan(loss)) return "NaN";
  return std::isinf(loss) ? "infinite" : format("%.6E", loss);
}

JsonText to_json(const TensorStatistics& statistics) {
  JsonText json = {{"shape", statistics.shape},
                   {"rms", statistics.rms},
                   {"max_abs", statistics.max_abs},
                   {"num_nan", statistics.num_nan},
                   {"num_inf", statistics.num_inf}};
  if (!statistics.first_bad.empty()) json["first_bad"] = statistics.first_bad;
  return json;
}

JsonText to_json(const FirstBadOp& bad, const Microbatch& microbatch) {
  std::vector<std::int64_t> ordinals;
  for (const std::int64_t row : bad.samples)
    ordinals.push_back(sample_of_ordinal(microbatch.sample_ordinals[row].item<std::int64_t>()));
  return {{"op", bad.op},
          {"pass", bad.pass == FirstBadOp::Pass::forward ? "forward" : "backward"},
          {"detail", bad.detail},
          {"what", bad.what},
          {"statistics", to_json(bad.statistics)},
          {"sample_ordinals", ordinals},
          {"before", bad.before ? to_json(*bad.before) : JsonText(nullptr)}};
}

}  // namespace

Replay replay(const ReplayOptions& options, const ModelFamilies& families) {
  Replay result{.batch = load_batch(options.file)};
  result.model = find_model_family(result.batch.family, families)
                     .make(result.batch.model, Rank{.seed = result.batch.seed},
                           {.vocab_pad_multiple = result.batch.vocab_pad_multiple});
  result.weights = std::make_unique<ParamStore>(
      declared_parameters(*result.model),
      ParamStore::Options{.dtype = compute_type(result.batch.precision),
                          .grad_dtype = c10::kFloat});
  result.weights_source = fill_weights(result, options);
  result.trace =
      trace_microbatch(*result.model, *result.weights, result.batch.microbatch,
                       {.per_token = true, .gradient_factor = result.batch.gradient_scale});
  return result;
}

std::string replay_table(const Replay& replay) {
  const SavedBatch& batch = replay.batch;
  std::size_t width = 2;
  for (const OpRecord& record : replay.trace.ops) width = std::max(width, record.op.size());
  const int columns = static_cast<int>(width);
  std::string text =
      format("iteration %lld, microbatch %lld of %lld, %s\nweights: %s\n\n",
             static_cast<long long>(batch.iteration), static_cast<long long>(batch.index) + 1,
             static_cast<long long>(batch.num_microbatches), sample_list(batch.microbatch).c_str(),
             replay.weights_source.c_str());
  text += format("%-*s %-16s %10s %10s %10s %10s\n", columns, "op", "shape", "rms", "max",
                 "grad rms", "grad max");
  for (const OpRecord& record : replay.trace.ops) {
    text +=
        format("%-*s %-16s ", columns, record.op.c_str(), shape_text(record.output.shape).c_str()) +
        cells(record.output) + " " + cells(record.gradient) + counts(record.output, "output") +
        (record.gradient ? counts(*record.gradient, "gradient") : "") + "\n";
  }
  text += "\nloss: " + loss_text(replay.trace.loss_sum / std::max(replay.trace.tokens, 1.0)) +
          format(" over %.0f tokens", replay.trace.tokens);
  if (!replay.trace.first_bad) return text + "\nevery output and every gradient is finite\n";
  return text + explain(replay.trace, *replay.weights, batch.microbatch) + "\n";
}

JsonText replay_json(const Replay& replay) {
  const SavedBatch& batch = replay.batch;
  JsonText ops = JsonText::array();
  for (const OpRecord& record : replay.trace.ops) {
    ops.push_back({{"op", record.op},
                   {"output", to_json(record.output)},
                   {"gradient", record.gradient ? to_json(*record.gradient) : JsonText(nullptr)}});
  }
  return {{"iteration", batch.iteration},
          {"microbatch", batch.index + 1},
          {"weights", replay.weights_source},
          {"loss_sum", replay.trace.loss_sum},
          {"tokens", replay.trace.tokens},
          {"ops", ops},
          {"first_bad", replay.trace.first_bad ? to_json(*replay.trace.first_bad, batch.microbatch)
                                               : JsonText(nullptr)},
          {"cause", batch.cause}};
}

}  // namespace megatron
