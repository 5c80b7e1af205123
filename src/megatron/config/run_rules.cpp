// Rules on the learning rate and the data, and the list of all rules on a run.
#include <algorithm>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using S = const Settings&;

double decoupled_min_lr(S s) { return s.optimizer->decoupled_min_lr.value_or(s.scheduler->min_lr); }
bool needs_model(const TokenizerConfig& tokenizer) {
  const std::string& type = tokenizer.tokenizer_type;
  return type == "HuggingFaceTokenizer" || type == "TikTokenizer" ||
         type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer" ||
         type == "Llama2Tokenizer" || type == "SFTTokenizer" || type == "MultimodalTokenizer";
}
bool by_samples(S s) { return s.training->train_samples > 0; }
bool uses_iteration_schedule(S s) {
  return s.scheduler->lr_decay_iters || s.scheduler->lr_wsd_decay_iters ||
         s.scheduler->lr_warmup_iters > 0;
}
bool has_warmup_steps(S s) {
  return s.scheduler->lr_warmup_iters > 0 || s.scheduler->lr_warmup_samples > 0;
}
std::int64_t decay_steps(S s) {
  return by_samples(s) ? s.scheduler->lr_decay_samples.value_or(s.training->train_samples)
                       : s.scheduler->lr_decay_iters.value_or(s.training->train_iters);
}
std::int64_t warmup_steps(S s) {
  return by_samples(s) ? s.scheduler->lr_warmup_samples : s.scheduler->lr_warmup_iters;
}

int data_sources(S s) {
  const DataConfig& d = *s.data;
  const bool splits =
      !d.train_data_path.empty() || !d.valid_data_path.empty() || !d.test_data_path.empty();
  return !d.data_path.empty() + !d.data_args_path.empty() + splits +
         !d.per_split_data_args_path.empty() + d.mock_data;
}

const std::vector<Rule>& learning_rate_rules() {
  static const std::vector<Rule> rules = {
      {{"lr"},
       [](S s) { return !s.scheduler->lr && !s.training->skip_train; },
       [](S) {
         return UserError::Parts{"--lr", "is required", "add --lr X, the peak learning rate"};
       }},
      {{"lr", "min_lr"},
       [](S s) { return s.scheduler->lr && s.scheduler->min_lr > *s.scheduler->lr; },
       [](S s) {
         return UserError::Parts{
             "--min-lr",
             detail::concatenate(s.scheduler->min_lr, " is above --lr ", *s.scheduler->lr),
             "lower --min-lr"};
       }},
      {{"lr", "lr_warmup_init"},
       [](S s) { return s.scheduler->lr && s.scheduler->lr_warmup_init > *s.scheduler->lr; },
       [](S s) {
         return UserError::Parts{
             "--lr-warmup-init",
             detail::concatenate(s.scheduler->lr_warmup_init, " is above --lr ", *s.scheduler->lr),
             "lower --lr-warmup-init"};
       }},
      {{"decoupled_lr", "decoupled_min_lr"},
       [](S s) { return s.optimizer->decoupled_min_lr && !s.optimizer->decoupled_lr; },
       [](S) { return needs_flag("--decoupled-min-lr", "--decoupled-lr"); }},
      {{"decoupled_lr", "decoupled_min_lr", "min_lr"},
       [](S s) {
         return s.optimizer->decoupled_lr && decoupled_min_lr(s) > *s.optimizer->decoupled_lr;
       },
       [](S s) {
         return UserError::Parts{
             s.optimizer->decoupled_min_lr ? "--decoupled-min-lr" : "--min-lr",
             detail::concatenate(decoupled_min_lr(s), " is above --decoupled-lr ",
                                 *s.optimizer->decoupled_lr),
             s.optimizer->decoupled_min_lr ? "lower --decoupled-min-lr"
                                           : "add a lower --decoupled-min-lr"};
       }},
      {{"train_samples", "lr_decay_iters", "lr_wsd_decay_iters", "lr_warmup_iters"},
       [](S s) { return by_samples(s) && uses_iteration_schedule(s); },
       [](S) {
         return UserError::Parts{
             "--train-samples", "excludes schedules in iterations",
             "use --lr-decay-samples, --lr-wsd-decay-samples and --lr-warmup-samples"};
       }},
      {{"train_iters", "lr_decay_samples", "lr_wsd_decay_samples", "lr_warmup_samples"},
       [](S s) {
         return s.training->train_iters > 0 && !by_samples(s) && uses_sample_schedule(*s.scheduler);
       },
       [](S) {
         return UserError::Parts{
             "--train-iters", "excludes schedules in samples",
             "use --lr-decay-iters, --lr-wsd-decay-iters and --lr-warmup-iters"};
       }},
      {{"train_epochs", "lr_decay_iters", "lr_wsd_decay_iters", "lr_warmup_iters",
        "lr_decay_samples", "lr_wsd_decay_samples", "lr_warmup_samples"},
       [](S s) {
         return s.training->train_epochs && uses_iteration_schedule(s) &&
                uses_sample_schedule(*s.scheduler);
       },
       [](S) {
         return UserError::Parts{"--train-epochs",
                                 "cannot count both iterations and samples in schedules",
                                 "give all lengths of the schedule in one unit"};
       }},
  };
  return rules;
}

const std::vector<Rule>& straggler_rules() {
  static const auto needs_report = [](const std::string& flag) {
    return needs_flag(flag, "--log-straggler");
  };
  static const LoggerConfig defaults;
  static const std::vector<Rule> rules = {
      {{"log_straggler", "straggler_minmax_count"},
       [](S s) {
         return !s.logger->log_straggler &&
                s.logger->straggler_minmax_count != defaults.straggler_minmax_count;
       },
       [](S) { return needs_report("--straggler-minmax-count"); }},
      {{"log_straggler", "straggler_ctrlr_port"},
       [](S s) {
         return !s.logger->log_straggler &&
                s.logger->straggler_ctrlr_port != defaults.straggler_ctrlr_port;
       },
       [](S) { return needs_report("--straggler-ctrlr-port"); }},
      {{"log_straggler", "disable_straggler_on_startup"},
       [](S s) { return !s.logger->log_straggler && s.logger->disable_straggler_on_startup; },
       [](S) { return needs_report("--disable-straggler-on-startup"); }}};
  return rules;
}

const std::vector<Rule>& phase_rules() {
  static const std::vector<Rule> rules = {
      {{"lr_warmup_fraction", "lr_warmup_iters", "lr_warmup_samples"},
       [](S s) { return s.scheduler->lr_warmup_fraction && has_warmup_steps(s); },
       [](S) {
         return UserError::Parts{"--lr-warmup-fraction",
                                 "excludes --lr-warmup-iters and --lr-warmup-samples",
                                 "give one of them"};
       }},
      {{"lr_warmup_iters", "lr_warmup_samples", "lr_decay_iters", "lr_decay_samples", "train_iters",
        "train_samples"},
       [](S s) {
         return decay_steps(s) > 0 && warmup_steps(s) >= decay_steps(s) && warmup_steps(s) > 0;
       },
       [](S s) {
         const std::string unit = by_samples(s) ? "samples" : "iters";
         return UserError::Parts{
             "--lr-warmup-" + unit,
             text_of(warmup_steps(s)) + " leaves nothing of the decay's " + text_of(decay_steps(s)),
             "warm up for less, or raise --lr-decay-" + unit};
       }},
      {{"lr_decay_style", "lr_wsd_decay_iters", "lr_wsd_decay_samples"},
       [](S s) {
         return s.scheduler->lr_decay_style == LrDecayStyle::WSD &&
                !s.scheduler->lr_wsd_decay_iters && !s.scheduler->lr_wsd_decay_samples;
       },
       [](S s) {
         return UserError::Parts{
             "--lr-decay-style WSD", "needs the length of its decay phase",
             by_samples(s) ? "add --lr-wsd-decay-samples N" : "add --lr-wsd-decay-iters N"};
       }},
  };
  return rules;
}

const std::vector<Rule>& weight_decay_rules() {
  static const std::vector<Rule> rules = {
      {{"weight_decay_incr_style", "start_weight_decay", "end_weight_decay"},
       [](S s) {
         return s.scheduler->weight_decay_incr_style != WeightDecayIncrStyle::constant &&
                !(s.scheduler->start_weight_decay && s.scheduler->end_weight_decay);
       },
       [](S) {
         return UserError::Parts{"--weight-decay-incr-style", "needs both ends of the weight decay",
                                 "add --start-weight-decay X and --end-weight-decay X"};
       }},
      {{"weight_decay_incr_style", "start_weight_decay", "end_weight_decay"},
       [](S s) {
         return s.scheduler->weight_decay_incr_style == WeightDecayIncrStyle::constant &&
                (s.scheduler->start_weight_decay || s.scheduler->end_weight_decay);
       },
       [](S) {
         return UserError::Parts{
             "--start-weight-decay and --end-weight-decay",
             "have no effect on a constant weight decay",
             "add --weight-decay-incr-style linear or cosine, or use --weight-decay alone"};
       }},
      {{"override_opt_param_scheduler", "use_checkpoint_opt_param_scheduler"},
       [](S s) {
         return s.scheduler->override_opt_param_scheduler &&
                s.scheduler->use_checkpoint_opt_param_scheduler;
       },
       [](S) {
         return UserError::Parts{"--override-opt-param-scheduler",
                                 "excludes --use-checkpoint-opt-param-scheduler",
                                 "give one of the two"};
       }},
  };
  return rules;
}

const std::vector<Rule>& data_rules() {
  static const std::vector<Rule> rules = {
      {{},
       [](S s) { return data_sources(s) > 1; },
       [](S) {
         return UserError::Parts{"data", "comes from more than one place",
                                 "give one of --data-path, --data-args-path, --train-data-path "
                                 "with --valid-data-path and --test-data-path, "
                                 "--per-split-data-args-path, --mock-data"};
       }},
      {{"split"},
       [](S s) { return !s.data->split.empty() && !split_weights(s.data->split); },
       [](S s) {
         return UserError::Parts{
             "--split",
             "'" + s.data->split +
                 "' is not a list of one to three fractions, at least one above 0",
             "write --split 969,30,1"};
       }},
      {{"tokenizer_type", "tokenizer_model", "tokenizer_metadata", "vocab_size", "load"},
       [](S s) {
         return !s.tokenizer->has_type_or_model() && !s.tokenizer->vocab_size &&
                s.checkpoint->load.empty();
       },
       [](S) {
         return UserError::Parts{"--vocab-file and --merge-file",
                                 "are required: the tokenizer is a GPT2BPETokenizer unless "
                                 "--tokenizer-type says otherwise",
                                 "add both, or --tokenizer-model FILE, or --tokenizer-type "
                                 "NullTokenizer --vocab-size N"};
       }},
      {{"tokenizer_type", "vocab_size"},
       [](S s) {
         return s.tokenizer->tokenizer_type.starts_with("Null") && !s.tokenizer->vocab_size;
       },
       [](S s) {
         return UserError::Parts{"--tokenizer-type " + s.tokenizer->tokenizer_type,
                                 "needs --vocab-size", "add --vocab-size N"};
       }},
      {{"tokenizer_type", "vocab_file", "merge_file"},
       [](S s) {
         return s.tokenizer->tokenizer_type == "GPT2BPETokenizer" &&
                (s.tokenizer->vocab_file.empty() || s.tokenizer->merge_file.empty());
       },
       [](S) {
         return UserError::Parts{"--tokenizer-type GPT2BPETokenizer",
                                 "needs --vocab-file and --merge-file",
                                 "add --vocab-file vocab.json --merge-file merges.txt"};
       }},
      {{"tokenizer_type", "tokenizer_model"},
       [](S s) { return needs_model(*s.tokenizer) && s.tokenizer->tokenizer_model.empty(); },
       [](S s) {
         return UserError::Parts{"--tokenizer-type " + s.tokenizer->tokenizer_type,
                                 "needs --tokenizer-model",
                                 "add --tokenizer-model with the tokenizer's file or its folder"};
       }},
      {{"tokenizer_type", "vocab_file"},
       [](S s) {
         return s.tokenizer->tokenizer_type.starts_with("BertWordPiece") &&
                s.tokenizer->vocab_file.empty() && s.tokenizer->tokenizer_model.empty();
       },
       [](S s) {
         return UserError::Parts{"--tokenizer-type " + s.tokenizer->tokenizer_type,
                                 "needs --vocab-file", "add --vocab-file vocab.txt"};
       }},
  };
  return rules;
}

}  // namespace

Problems evaluate(const std::vector<Rule>& rules, const Settings& settings,
                  const FieldNames& skip) {
  Problems problems;
  for (const Rule& rule : rules) {
    const bool readable = std::none_of(rule.fields.begin(), rule.fields.end(),
                                       [&](std::string_view name) { return skip.contains(name); });
    if (readable && rule.is_violated(settings)) problems.add(rule.message(settings));
  }
  return problems;
}

Problems validate_run(const Settings& settings, const FieldNames& skip) {
  Problems problems;
  for (const auto* rules :
       {&batch_rules(), &evaluation_rules(), &checkpoint_rules(), &learning_rate_rules(),
        &phase_rules(), &weight_decay_rules(), &data_rules(), &fim_rules(),
        &document_packing_rules(), &document_attention_rules(), &sft_rules(), &parallel_rules(),
        &pipeline_rules(), &optimizer_settings_rules(), &memory_rules(), &straggler_rules(),
        &fault_tolerance_rules()})
    problems.add(evaluate(*rules, settings, skip));
  problems.add(validate_precision(settings, skip));
  problems.add(validate_profile(settings, skip));
  problems.add(validate_reruns(settings, skip));
  return problems;
}

}  // namespace megatron
