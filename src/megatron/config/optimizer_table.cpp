// The flags of the optimizer and of its learning rate and weight decay over time.
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"

namespace megatron {

const FieldTable<OptimizerConfig>& optimizer_table() {
  using Config = OptimizerConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Optimizer");
    t.field("optimizer", &Config::optimizer, "update rule").choices({"adam", "sgd"});
    t.field("weight_decay", &Config::weight_decay, "decoupled weight decay").at_least(0);
    t.field("apply_wd_to_qk_layernorm", &Config::apply_wd_to_qk_layernorm,
            "decay the norms of queries and keys too");
    t.field("clip_grad", &Config::clip_grad, "largest norm of the gradient; 0: no clipping")
        .at_least(0);
    t.field("adam_beta1", &Config::adam_beta1, "decay of Adam's first moment").at_least(0).below(1);
    t.field("adam_beta2", &Config::adam_beta2, "decay of Adam's second moment")
        .at_least(0)
        .below(1);
    t.field("adam_eps", &Config::adam_eps, "Adam's epsilon").above(0);
    t.field("sgd_momentum", &Config::sgd_momentum, "momentum of SGD").at_least(0).below(1);
    t.field("decoupled_lr", &Config::decoupled_lr,
            "peak learning rate of the word embedding and the output layer; none: --lr")
        .at_least(0);
    t.field("decoupled_min_lr", &Config::decoupled_min_lr,
            "floor of that learning rate; none: --min-lr")
        .at_least(0);
    add_precision_fields(t);
    return t;
  }();
  return table;
}

const FieldTable<SchedulerConfig>& scheduler_table() {
  using Config = SchedulerConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Learning rate");
    t.field("lr", &Config::lr, "peak learning rate").at_least(0);
    t.field("min_lr", &Config::min_lr, "floor of the decay").at_least(0);
    t.field("lr_decay_style", &Config::lr_decay_style, "law of the decay");
    t.field("lr_decay_iters", &Config::lr_decay_iters,
            "iterations of the decay; none: the whole run")
        .at_least(1)
        .at_most(kMaxSize);
    t.field("lr_decay_samples", &Config::lr_decay_samples,
            "samples of the decay, with --train-samples")
        .at_least(1)
        .at_most(kMaxSamples);
    t.field("lr_wsd_decay_style", &Config::lr_wsd_decay_style, "law of WSD's last phase");
    t.field("lr_wsd_decay_iters", &Config::lr_wsd_decay_iters, "iterations of WSD's last phase")
        .at_least(0)
        .at_most(kMaxSize);
    t.field("lr_wsd_decay_samples", &Config::lr_wsd_decay_samples, "samples of WSD's last phase")
        .at_least(0)
        .at_most(kMaxSamples);
    t.field("lr_warmup_fraction", &Config::lr_warmup_fraction, "part of the decay that warms up")
        .at_least(0)
        .at_most(1);
    t.field("lr_warmup_iters", &Config::lr_warmup_iters, "iterations of linear warm-up")
        .at_least(0)
        .at_most(kMaxSize);
    t.field("lr_warmup_samples", &Config::lr_warmup_samples,
            "samples of linear warm-up, with --train-samples")
        .at_least(0)
        .at_most(kMaxSamples);
    t.field("lr_warmup_init", &Config::lr_warmup_init, "learning rate at the start of the warm-up")
        .at_least(0);
    t.field("start_weight_decay", &Config::start_weight_decay,
            "weight decay at the start, when it changes")
        .at_least(0);
    t.field("end_weight_decay", &Config::end_weight_decay,
            "weight decay at the end, when it changes")
        .at_least(0);
    t.field("weight_decay_incr_style", &Config::weight_decay_incr_style,
            "how the weight decay changes");
    t.field("override_opt_param_scheduler", &Config::override_opt_param_scheduler,
            "on resume, the schedule of the flags wins")
        .alias("override-opt_param-scheduler");
    t.field("use_checkpoint_opt_param_scheduler", &Config::use_checkpoint_opt_param_scheduler,
            "on resume, the checkpoint's schedule wins")
        .alias("use-checkpoint-opt_param-scheduler");
    return t;
  }();
  return table;
}

}  // namespace megatron
