// Rules on the learning rate and the data, and the list of all rules on a run.
#include <algorithm>

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/rule.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using namespace rules;

/// A tokenizer whose type begins with one of `names`.
Condition tokenizer(std::vector<std::string_view> names) {
  const auto is_named = [names = std::move(names)](S s) {
    const std::string& type = s.tokenizer->tokenizer_type;
    return std::ranges::any_of(names,
                               [&](std::string_view name) { return type.starts_with(name); });
  };
  return {is_named, with_value(&Tokenizer::tokenizer_type)};
}

bool by_samples(S s) { return s.training->train_samples > 0; }
std::int64_t decay_steps(S s) {
  return by_samples(s) ? s.scheduler->lr_decay_samples.value_or(s.training->train_samples)
                       : s.scheduler->lr_decay_iters.value_or(s.training->train_iters);
}
std::int64_t warmup_steps(S s) {
  return by_samples(s) ? s.scheduler->lr_warmup_samples : s.scheduler->lr_warmup_iters;
}
bool warms_up_too_long(S s) {
  return decay_steps(s) > 0 && warmup_steps(s) >= decay_steps(s) && warmup_steps(s) > 0;
}
Setting decay_flag(S s) {
  return by_samples(s) ? &Scheduler::lr_decay_samples : &Scheduler::lr_decay_iters;
}
Setting warmup_flag(S s) {
  return by_samples(s) ? &Scheduler::lr_warmup_samples : &Scheduler::lr_warmup_iters;
}
Setting wsd_flag(S s) {
  return by_samples(s) ? &Scheduler::lr_wsd_decay_samples : &Scheduler::lr_wsd_decay_iters;
}
/// Returns the length of the decay phase of WSD; nullopt if it is not given in the unit of the run.
std::optional<std::int64_t> wsd_steps(S s) {
  const auto& samples = s.scheduler->lr_wsd_decay_samples;
  const auto& iterations = s.scheduler->lr_wsd_decay_iters;
  return s.training->train_epochs && !iterations ? samples : by_samples(s) ? samples : iterations;
}
std::int64_t steps_after_warmup(S s) {
  const double fraction = s.scheduler->lr_warmup_fraction.value_or(0);
  return decay_steps(s) - warmup_steps(s) -
         static_cast<std::int64_t>(fraction * static_cast<double>(decay_steps(s)));
}
bool jumps_after_warmup(S s) {
  return decay_steps(s) > 0 && wsd_steps(s).value_or(0) > steps_after_warmup(s);
}
bool warms_up(S s) {
  const SchedulerConfig& c = *s.scheduler;
  return c.lr_warmup_iters > 0 || c.lr_warmup_samples > 0 || c.lr_warmup_fraction.value_or(0) > 0;
}

bool has_several_sources(S s) {
  const DataConfig& d = *s.data;
  const bool splits =
      !d.train_data_path.empty() || !d.valid_data_path.empty() || !d.test_data_path.empty();
  return !d.data_path.empty() + !d.data_args_path.empty() + splits +
             !d.per_split_data_args_path.empty() + d.mock_data >
         1;
}

bool has_no_tokenizer(S s) {
  return !s.tokenizer->has_type_or_model() && !s.tokenizer->vocab_size &&
         s.checkpoint->load.empty();
}

Rules learning_rate_rules() {
  const Condition in_iterations = any({&Scheduler::lr_decay_iters, &Scheduler::lr_warmup_iters}),
                  in_samples = any({&Scheduler::lr_decay_samples, &Scheduler::lr_warmup_samples}),
                  wsd = is(&Scheduler::lr_decay_style, "WSD");
  return {
      refuse({without(&Scheduler::lr), without(&Training::skip_train)}, "is required",
             {"add ", to_add(&Scheduler::lr), ", the peak learning rate"}),
      at_most(&Scheduler::lr, &Scheduler::min_lr),
      at_most(&Scheduler::lr, &Scheduler::lr_warmup_init),
      tunes({&Optimizer::decoupled_min_lr}, &Optimizer::decoupled_lr),
      at_most(&Optimizer::decoupled_lr, &Optimizer::decoupled_min_lr),
      when(without(&Optimizer::decoupled_min_lr),
           at_most(&Optimizer::decoupled_lr, &Scheduler::min_lr,
                   {.fix = {"add a lower ", &Optimizer::decoupled_min_lr}})),
      excludes(
          &Training::train_samples, in_iterations,
          {.fix = {"use ", &Scheduler::lr_decay_samples, " and ", &Scheduler::lr_warmup_samples}}),
      when(without(&Training::train_samples),
           excludes(&Training::train_iters, in_samples,
                    {.fix = {"use ", &Scheduler::lr_decay_iters, " and ",
                             &Scheduler::lr_warmup_iters}})),
      refuse({&Training::train_epochs, any({in_iterations, &Scheduler::lr_wsd_decay_iters}),
              any({in_samples, &Scheduler::lr_wsd_decay_samples})},
             "cannot count both iterations and samples in schedules",
             "give all lengths of the schedule in one unit"),
      excludes(&Scheduler::lr_warmup_fraction,
               {&Scheduler::lr_warmup_iters, &Scheduler::lr_warmup_samples}),
      rule(warms_up_too_long, {warmup_flag,
                               {warmup_steps, " leaves nothing of the decay's ", decay_steps},
                               {"warm up for less, or raise ", decay_flag},
                               {&Training::train_iters, &Training::train_samples}}),
      refuse({wsd, [](S s) { return !wsd_steps(s); }}, "needs the length of its decay phase",
             {"add ", [](S s) { return Words(to_add(wsd_flag(s))); }}),
      note({{jumps_after_warmup, wsd_flag}, wsd},
           {"is more than the ", steps_after_warmup,
            " steps after the warm-up: the learning rate jumps where they begin"}),
      tunes({&Scheduler::lr_wsd_decay_iters, &Scheduler::lr_wsd_decay_samples,
             &Scheduler::lr_wsd_decay_style},
            wsd),
      when(wsd, idle({&Scheduler::lr_wsd_decay_iters}, &Training::train_samples)),
      when(wsd, idle({&Scheduler::lr_wsd_decay_samples}, valued(&Training::train_iters))),
      tunes({&Scheduler::lr_warmup_init}, {warms_up, "warm-up"}),
  };
}

Rules weight_decay_rules() {
  return {
      needs(valued(&Scheduler::weight_decay_incr_style), &Scheduler::start_weight_decay),
      needs(valued(&Scheduler::weight_decay_incr_style), &Scheduler::end_weight_decay),
      needs(any({&Scheduler::start_weight_decay, &Scheduler::end_weight_decay}),
            &Scheduler::weight_decay_incr_style,
            {.fix = {"add ", &Scheduler::weight_decay_incr_style, " linear or cosine, or use ",
                     &Optimizer::weight_decay, " alone"}}),
      excludes(&Scheduler::override_opt_param_scheduler,
               &Scheduler::use_checkpoint_opt_param_scheduler),
  };
}

Rules data_rules() {
  const Condition gpt2 = is(&Tokenizer::tokenizer_type, "GPT2BPETokenizer");
  return {
      rule(has_several_sources, {"data",
                                 "comes from more than one place",
                                 {"give one of ", &Data::data_path, ", ", &Data::data_args_path,
                                  ", ", &Data::train_data_path, " with ", &Data::valid_data_path,
                                  " and ", &Data::test_data_path, ", ",
                                  &Data::per_split_data_args_path, ", ", &Data::mock_data}}),
      refuse({&Data::split, [](S s) { return !split_weights(s.data->split); }},
             {"'", value(&Data::split),
              "' is not a list of one to three fractions, at least one above 0"},
             {"write ", &Data::split, " 969,30,1"}),
      rule(has_no_tokenizer,
           {{&Tokenizer::vocab_file, " and ", &Tokenizer::merge_file},
            {"are required: the tokenizer is a GPT2BPETokenizer unless ",
             &Tokenizer::tokenizer_type, " says otherwise"},
            {"add both, or ", to_add(&Tokenizer::tokenizer_model), ", or ",
             &Tokenizer::tokenizer_type, " NullTokenizer ", to_add(&Tokenizer::vocab_size)},
            {&Tokenizer::tokenizer_metadata, &Checkpoint::load}}),
      needs(tokenizer({"Null"}), &Tokenizer::vocab_size),
      needs(gpt2, &Tokenizer::vocab_file),
      needs(gpt2, &Tokenizer::merge_file),
      needs(tokenizer({"HuggingFace", "TikTokenizer", "SentencePiece", "GPTSentencePiece", "Llama2",
                       "SFTTokenizer", "MultimodalTokenizer"}),
            &Tokenizer::tokenizer_model, {.why = ", its file or folder"}),
      when(without(&Tokenizer::tokenizer_model),
           needs(tokenizer({"BertWordPiece"}), &Tokenizer::vocab_file)),
  };
}

}  // namespace

Problems validate_run(const Settings& settings, const FieldNames& skip) {
  static const Rules rules = {batch_rules(),
                              checkpoint_rules(),
                              learning_rate_rules(),
                              weight_decay_rules(),
                              data_rules(),
                              sample_rules(),
                              document_attention_rules(),
                              parallel_rules(),
                              pipeline_rules(),
                              new_router_rules(),
                              optimizer_settings_rules(),
                              memory_rules(),
                              resilience_rules(),
                              precision_rules(),
                              profile_rules()};
  FieldNames unread = skip;
  if (skip.contains("batch_size"))
    unread.insert(Setting(&Training::micro_batch_size).name());  // its former name
  return evaluate(rules, settings, unread);
}

}  // namespace megatron
