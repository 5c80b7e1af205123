// Rules on the learning rate and the data, and the list of all rules on a run.
#include <algorithm>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using namespace rules;

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

Rules learning_rate_rules() {
  return {
      rule([](S s) { return !s.scheduler->lr && !s.training->skip_train; },
           {&Scheduler::lr, "is required", {"add ", &Scheduler::lr, " X, the peak learning rate"}}),
      at_most(&Scheduler::lr, &Scheduler::min_lr),
      at_most(&Scheduler::lr, &Scheduler::lr_warmup_init),
      tunes({&Optimizer::decoupled_min_lr}, &Optimizer::decoupled_lr),
      at_most(&Optimizer::decoupled_lr, &Optimizer::decoupled_min_lr),
      rule(
          [](S s) {
            const OptimizerConfig& o = *s.optimizer;
            return o.decoupled_lr && !o.decoupled_min_lr && s.scheduler->min_lr > *o.decoupled_lr;
          },
          {&Scheduler::min_lr,
           {value(&Scheduler::min_lr), " is above ", with_value(&Optimizer::decoupled_lr)},
           {"add a lower ", &Optimizer::decoupled_min_lr}}),
      rule([](S s) { return by_samples(s) && uses_iteration_schedule(s); },
           {&Training::train_samples,
            "excludes schedules in iterations",
            {"use ", &Scheduler::lr_decay_samples, ", ", &Scheduler::lr_wsd_decay_samples, " and ",
             &Scheduler::lr_warmup_samples},
            {&Scheduler::lr_decay_iters, &Scheduler::lr_wsd_decay_iters,
             &Scheduler::lr_warmup_iters}}),
      rule(
          [](S s) {
            return s.training->train_iters > 0 && !by_samples(s) &&
                   uses_sample_schedule(*s.scheduler);
          },
          {&Training::train_iters,
           "excludes schedules in samples",
           {"use ", &Scheduler::lr_decay_iters, ", ", &Scheduler::lr_wsd_decay_iters, " and ",
            &Scheduler::lr_warmup_iters}}),
      rule(
          [](S s) {
            return s.training->train_epochs && uses_iteration_schedule(s) &&
                   uses_sample_schedule(*s.scheduler);
          },
          {&Training::train_epochs, "cannot count both iterations and samples in schedules",
           "give all lengths of the schedule in one unit"}),
  };
}

Rules phase_rules() {
  return {
      rule([](S s) { return s.scheduler->lr_warmup_fraction && has_warmup_steps(s); },
           {&Scheduler::lr_warmup_fraction,
            {"excludes ", &Scheduler::lr_warmup_iters, " and ", &Scheduler::lr_warmup_samples},
            "give one of them"}),
      rule(
          [](S s) {
            return decay_steps(s) > 0 && warmup_steps(s) >= decay_steps(s) && warmup_steps(s) > 0;
          },
          [](S s) {
            return Message{
                by_samples(s) ? &Scheduler::lr_warmup_samples : Words(&Scheduler::lr_warmup_iters),
                {warmup_steps(s), " leaves nothing of the decay's ", decay_steps(s)},
                {"warm up for less, or raise ", by_samples(s)
                                                    ? &Scheduler::lr_decay_samples
                                                    : Setting(&Scheduler::lr_decay_iters)},
                {&Training::train_iters, &Training::train_samples}};
          }),
      rule(
          [](S s) {
            return s.scheduler->lr_decay_style == LrDecayStyle::WSD &&
                   !s.scheduler->lr_wsd_decay_iters && !s.scheduler->lr_wsd_decay_samples;
          },
          [](S s) {
            return Message{with_value(&Scheduler::lr_decay_style),
                           "needs the length of its decay phase",
                           {"add ",
                            by_samples(s) ? Setting(&Scheduler::lr_wsd_decay_samples)
                                          : Setting(&Scheduler::lr_wsd_decay_iters),
                            " N"}};
          }),
  };
}

Rules weight_decay_rules() {
  return {
      rule(
          [](S s) {
            return s.scheduler->weight_decay_incr_style != WeightDecayIncrStyle::constant &&
                   !(s.scheduler->start_weight_decay && s.scheduler->end_weight_decay);
          },
          {&Scheduler::weight_decay_incr_style,
           "needs both ends of the weight decay",
           {"add ", &Scheduler::start_weight_decay, " X and ", &Scheduler::end_weight_decay,
            " X"}}),
      rule(
          [](S s) {
            return s.scheduler->weight_decay_incr_style == WeightDecayIncrStyle::constant &&
                   (s.scheduler->start_weight_decay || s.scheduler->end_weight_decay);
          },
          {{&Scheduler::start_weight_decay, " and ", &Scheduler::end_weight_decay},
           "have no effect on a constant weight decay",
           {"add ", &Scheduler::weight_decay_incr_style, " linear or cosine, or use ",
            &Optimizer::weight_decay, " alone"}}),
      excludes(&Scheduler::override_opt_param_scheduler,
               &Scheduler::use_checkpoint_opt_param_scheduler),
  };
}

Rules data_rules() {
  return {
      rule(
          [](S s) { return data_sources(s) > 1; },
          {"data",
           "comes from more than one place",
           {"give one of ", &Data::data_path, ", ", &Data::data_args_path, ", ",
            &Data::train_data_path, " with ", &Data::valid_data_path, " and ",
            &Data::test_data_path, ", ", &Data::per_split_data_args_path, ", ", &Data::mock_data}}),
      rule([](S s) { return !s.data->split.empty() && !split_weights(s.data->split); },
           {&Data::split,
            {"'", value(&Data::split),
             "' is not a list of one to three fractions, at least one above 0"},
            {"write ", &Data::split, " 969,30,1"}}),
      rule(
          [](S s) {
            return !s.tokenizer->has_type_or_model() && !s.tokenizer->vocab_size &&
                   s.checkpoint->load.empty();
          },
          {{&Tokenizer::vocab_file, " and ", &Tokenizer::merge_file},
           {"are required: the tokenizer is a GPT2BPETokenizer unless ", &Tokenizer::tokenizer_type,
            " says otherwise"},
           {"add both, or ", &Tokenizer::tokenizer_model, " FILE, or ", &Tokenizer::tokenizer_type,
            " NullTokenizer ", &Tokenizer::vocab_size, " N"},
           {&Tokenizer::tokenizer_metadata, &Checkpoint::load}}),
      rule(
          [](S s) {
            return s.tokenizer->tokenizer_type.starts_with("Null") && !s.tokenizer->vocab_size;
          },
          {with_value(&Tokenizer::tokenizer_type),
           {"needs ", &Tokenizer::vocab_size},
           {"add ", &Tokenizer::vocab_size, " N"}}),
      rule(
          [](S s) {
            return s.tokenizer->tokenizer_type == "GPT2BPETokenizer" &&
                   (s.tokenizer->vocab_file.empty() || s.tokenizer->merge_file.empty());
          },
          {with_value(&Tokenizer::tokenizer_type),
           {"needs ", &Tokenizer::vocab_file, " and ", &Tokenizer::merge_file},
           {"add ", &Tokenizer::vocab_file, " vocab.json ", &Tokenizer::merge_file,
            " merges.txt"}}),
      rule([](S s) { return needs_model(*s.tokenizer) && s.tokenizer->tokenizer_model.empty(); },
           {with_value(&Tokenizer::tokenizer_type),
            {"needs ", &Tokenizer::tokenizer_model},
            {"add ", &Tokenizer::tokenizer_model, " with the tokenizer's file or its folder"}}),
      rule(
          [](S s) {
            return s.tokenizer->tokenizer_type.starts_with("BertWordPiece") &&
                   s.tokenizer->vocab_file.empty() && s.tokenizer->tokenizer_model.empty();
          },
          {with_value(&Tokenizer::tokenizer_type),
           {"needs ", &Tokenizer::vocab_file},
           {"add ", &Tokenizer::vocab_file, " vocab.txt"}}),
  };
}

}  // namespace

Problems validate_run(const Settings& settings, const FieldNames& skip) {
  static const Rules rules = {batch_rules(),
                              evaluation_rules(),
                              checkpoint_rules(),
                              learning_rate_rules(),
                              phase_rules(),
                              weight_decay_rules(),
                              data_rules(),
                              fim_rules(),
                              document_packing_rules(),
                              document_attention_rules(),
                              sft_rules(),
                              parallel_rules(),
                              pipeline_rules(),
                              optimizer_settings_rules(),
                              memory_rules(),
                              tunes({&Logger::straggler_minmax_count, &Logger::straggler_ctrlr_port,
                                     &Logger::disable_straggler_on_startup},
                                    &Logger::log_straggler),
                              fault_tolerance_rules()};
  FieldNames unread = skip;
  if (skip.contains("batch_size"))
    unread.insert(Setting(&Training::micro_batch_size).name());  // its former name
  Problems problems = evaluate(rules, settings, unread);
  problems.add(validate_precision(settings, skip));
  problems.add(validate_profile(settings, skip));
  problems.add(validate_reruns(settings, skip));
  return problems;
}

}  // namespace megatron
