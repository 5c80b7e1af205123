// Declares the flags of the optimizer, the learning rate schedule and the weight decay schedule.
#include "megatron/config/optimizer_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

constexpr std::string_view kNotStored = "applies from now on: checkpoints do not store it";

}  // namespace

const FieldTable<OptimizerConfig>& optimizer_table() {
  using Config = OptimizerConfig;
  return field_table<Config>([](auto& t) {
    t.group("Optimizer");
    t.field("optimizer", &Config::optimizer, "update rule of the optimizer")
        .choices({"adam", "sgd"})
        .breaks_resume("its state belongs to another update rule");
    t.field("train_only", &Config::train_only,
            "train only the parameters whose name this regular expression matches somewhere, "
            "such as 'layers[.]2[0-9][.]'; the others are frozen")
        .repeatable()
        .value_name("REGEX")
        .applies_on_resume();
    t.field("freeze", &Config::freeze,
            "freeze the parameters whose name this regular expression matches somewhere, such as "
            "'^embedding'; they keep their values and have no gradient and no optimizer state")
        .repeatable()
        .value_name("REGEX")
        .applies_on_resume();
    t.field("weight_decay", &Config::weight_decay, "coefficient of the decoupled weight decay")
        .at_least(0)
        .defines_schedule();
    t.field("apply_wd_to_qk_layernorm", &Config::apply_wd_to_qk_layernorm,
            "apply weight decay to the norms of queries and keys too");
    t.field("clip_grad", &Config::clip_grad, "clip the gradient to this norm; 0: do not clip")
        .at_least(0)
        .applies_on_resume();
    t.field("qk_clip", &Config::qk_clip,
            "after each step, scale down the weights of queries and keys whose attention scores "
            "were larger than --qk-clip-threshold")
        .applies_on_resume();
    t.field("qk_clip_alpha", &Config::qk_clip_alpha,
            "exponent of the factor threshold / largest score for queries; that of keys is 1 minus "
            "it")
        .at_least(0)
        .at_most(1)
        .applies_on_resume();
    t.field("qk_clip_threshold", &Config::qk_clip_threshold,
            "largest attention score that --qk-clip leaves alone")
        .above(0)
        .applies_on_resume();
    t.field("adam_beta1", &Config::adam_beta1, "decay rate of Adam's first moment")
        .at_least(0)
        .below(1)
        .applies_on_resume();
    t.field("adam_beta2", &Config::adam_beta2, "decay rate of Adam's second moment")
        .at_least(0)
        .below(1)
        .applies_on_resume();
    t.field("adam_eps", &Config::adam_eps, "Adam's epsilon").above(0).applies_on_resume();
    t.field("sgd_momentum", &Config::sgd_momentum, "momentum of SGD")
        .at_least(0)
        .below(1)
        .applies_on_resume();
    t.field("decoupled_lr", &Config::decoupled_lr,
            "peak learning rate of the word embedding and the output layer; none: --lr")
        .at_least(0);
    t.field("decoupled_min_lr", &Config::decoupled_min_lr,
            "smallest learning rate of the word embedding and the output layer; none: --min-lr")
        .at_least(0);
    add_precision_fields(t);
  });
}

const FieldTable<SchedulerConfig>& scheduler_table() {
  using Config = SchedulerConfig;
  return field_table<Config>([](auto& t) {
    t.group("Learning rate").following().left_out_of_check().defines_schedule();
    t.field("lr", &Config::lr, "peak learning rate").at_least(0);
    t.field("min_lr", &Config::min_lr, "smallest learning rate of the decay").at_least(0);
    t.field("lr_decay_style", &Config::lr_decay_style, "shape of the learning rate decay");
    t.field("lr_decay_iters", &Config::lr_decay_iters,
            "number of iterations of the decay; none: the whole run")
        .between(1, kMaxSize);
    t.field("lr_decay_samples", &Config::lr_decay_samples,
            "number of samples of the decay, with --train-samples")
        .between(1, kMaxSamples);
    t.field("lr_wsd_decay_style", &Config::lr_wsd_decay_style, "shape of the decay phase of WSD")
        .on_resume(kNotStored);
    t.field("lr_wsd_decay_iters", &Config::lr_wsd_decay_iters,
            "number of iterations of the decay phase of WSD")
        .between(0, kMaxSize)
        .on_resume(kNotStored);
    t.field("lr_wsd_decay_samples", &Config::lr_wsd_decay_samples,
            "number of samples of the decay phase of WSD")
        .between(0, kMaxSamples)
        .on_resume(kNotStored);
    t.field("lr_warmup_fraction", &Config::lr_warmup_fraction,
            "fraction of the decay that is used for linear warm-up")
        .between(0, 1)
        .older_name("warmup");
    t.field("lr_warmup_iters", &Config::lr_warmup_iters, "number of iterations of linear warm-up")
        .between(0, kMaxSize);
    t.field("lr_warmup_samples", &Config::lr_warmup_samples,
            "number of samples of linear warm-up, with --train-samples")
        .between(0, kMaxSamples);
    t.field("lr_warmup_init", &Config::lr_warmup_init, "learning rate at the start of the warm-up")
        .at_least(0)
        .on_resume(kNotStored);
    t.field("start_weight_decay", &Config::start_weight_decay,
            "weight decay at the start, if it changes over time")
        .at_least(0);
    t.field("end_weight_decay", &Config::end_weight_decay,
            "weight decay at the end, if it changes over time")
        .at_least(0);
    t.field("weight_decay_incr_style", &Config::weight_decay_incr_style,
            "shape of the change of the weight decay");
    t.following().on_resume("");
    t.field("override_opt_param_scheduler", &Config::override_opt_param_scheduler,
            "on resume, use the schedule that the flags describe")
        .alias("override-opt_param-scheduler");
    t.field("use_checkpoint_opt_param_scheduler", &Config::use_checkpoint_opt_param_scheduler,
            "on resume, use the schedule that the checkpoint contains")
        .alias("use-checkpoint-opt_param-scheduler");
  });
}

}  // namespace megatron
