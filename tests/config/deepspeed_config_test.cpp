#include "megatron/config/deepspeed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/files.h"
#include "megatron/config/loss_scale_config.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "mistake_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

class DeepSpeedConfigFile : public testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const std::string path = folder_ / "ds_config.json";
    write_file(path, text);
    return path;
  }

  Words words(const std::string& text, const Words& more) const {
    Words all{"--deepspeed", "--deepspeed_config", write(text)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  RunConfig run(const std::string& text, Words more = {}, std::int64_t world_size = 1) const {
    more.emplace_back("--print-config");
    return read_run(words(text, more), world_size);
  }

  std::string mistake(const std::string& text, Words more = {}) const {
    more.emplace_back("--print-config");
    return mistake_of(words(text, more));
  }

  TemporaryFolder folder_;
};

TEST_F(DeepSpeedConfigFile, GivesTheSettingsOfARun) {
  const RunConfig config = run(R"({
    "gradient_clipping": 0.5, "steps_per_print": 20, "wall_clock_breakdown": true,
    "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500,
             "hysteresis": 3, "min_loss_scale": 2, "auto_cast": false},
    "bf16": {"enabled": false, "bf16_master_weights_and_grads": true},
    "data_types": {"grad_accum_dtype": "fp32"},
    "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8,
      "zero_quantized_weights": false, "contiguous_gradients": true,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/local", "ratio": 0.5,
                            "pipeline_read": true, "pin_memory": true},
      "offload_param": {"device": "cpu", "nvme_path": "/elsewhere"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6,
                  "weight_decay": 0.1, "torch_adam": true, "adam_w_mode": true}},
    "curriculum_learning": {"enabled": false, "min_difficulty": 8},
    "_comment": "not read"})");
  const Settings& s = config.options.settings;
  EXPECT_EQ(s.optimizer->clip_grad, 0.5);
  EXPECT_TRUE(s.training->fp16);
  EXPECT_FALSE(s.training->bf16);
  EXPECT_EQ(s.training->loss_scale.initial_loss_scale, 4096);
  EXPECT_EQ(s.training->loss_scale.loss_scale_window, 500);
  EXPECT_EQ(s.training->loss_scale.hysteresis, 3);
  EXPECT_EQ(s.training->loss_scale.min_loss_scale, 2);
  EXPECT_TRUE(s.training->accumulate_allreduce_grads_in_fp32);
  EXPECT_EQ(s.parallel->zero_stage, 2);
  EXPECT_TRUE(s.parallel->overlap_grad_reduce);
  const OffloadConfig& offload = s.memory->offload;
  EXPECT_TRUE(offload.optimizer_cpu_offload);
  EXPECT_TRUE(offload.overlap_cpu_optimizer_d2h_h2d);
  EXPECT_EQ(offload.offload_folder, "/local");
  EXPECT_EQ(offload.optimizer_offload_fraction, 0.5);
  EXPECT_TRUE(offload.cpu_offloading && offload.cpu_offloading_weights);
  EXPECT_FALSE(offload.cpu_offloading_activations);
  EXPECT_EQ(s.optimizer->optimizer, "adam");
  EXPECT_EQ(s.scheduler->lr, 3e-4);
  EXPECT_EQ(s.optimizer->adam_beta1, 0.8);
  EXPECT_EQ(s.optimizer->adam_beta2, 0.95);
  EXPECT_EQ(s.optimizer->adam_eps, 1e-6);
  EXPECT_EQ(s.optimizer->weight_decay, 0.1);
  EXPECT_THAT(notes_text(config.parsed.notes),
              AllOf(HasSubstr("zero_optimization.reduce_bucket_size"),
                    HasSubstr("is not mapped: no setting here is its counterpart"),
                    Not(HasSubstr("curriculum_learning"))));
  EXPECT_THAT(config.parsed.origin("zero_stage").where,
              HasSubstr("ds_config.json: zero_optimization.stage"));
}

TEST_F(DeepSpeedConfigFile, HasTheDefaultsOfDeepSpeed) {
  const RunConfig config = run(R"({"fp16": {"enabled": true},
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})");
  const Settings& s = config.options.settings;
  EXPECT_EQ(s.optimizer->clip_grad, 0);
  EXPECT_EQ(s.training->loss_scale.initial_loss_scale, 65536);
  EXPECT_EQ(s.optimizer->optimizer, "sgd");
  EXPECT_EQ(s.optimizer->sgd_momentum, 0);
  EXPECT_EQ(s.optimizer->weight_decay, 0);
}

TEST_F(DeepSpeedConfigFile, LeavesWhatIsAutoAndWhatFlagsSay) {
  const RunConfig config = run(R"({"train_batch_size": "auto", "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_min_lr": "auto",
                  "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})",
                               {"--zero-stage", "1", "--lr", "0.25"});
  const Settings& s = config.options.settings;
  EXPECT_EQ(s.training->global_batch_size, TrainingConfig().global_batch_size);
  EXPECT_EQ(s.optimizer->clip_grad, OptimizerConfig().clip_grad);
  EXPECT_EQ(s.optimizer->weight_decay, OptimizerConfig().weight_decay);
  EXPECT_FALSE(s.training->bf16);
  EXPECT_EQ(s.parallel->zero_stage, 1);
  EXPECT_EQ(s.scheduler->lr, 0.25);
  EXPECT_EQ(s.scheduler->lr_warmup_iters, 0);
}

TEST_F(DeepSpeedConfigFile, GivesTheSchedules) {
  const auto scheduler_of = [&](const std::string& type, const std::string& params) {
    const std::string scheduler =
        R"({"type": ")" + type + R"(", "params": {"warmup_type": "linear")" + params + "}}";
    return *run(R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "scheduler": )" +
                scheduler + "}")
                .options.settings.scheduler;
  };
  SchedulerConfig s = scheduler_of("WarmupLR", R"(, "warmup_min_lr": 0.25, "warmup_max_lr": 1)");
  EXPECT_EQ(s.lr_decay_style, LrDecayStyle::constant);
  EXPECT_EQ(s.lr, 1);
  EXPECT_EQ(s.lr_warmup_init, 0.25);
  EXPECT_EQ(s.lr_warmup_iters, 1000);
  s = scheduler_of("WarmupDecayLR",
                   R"(, "warmup_min_lr": 0.25, "warmup_num_steps": 10, "total_num_steps": 90)");
  EXPECT_EQ(s.lr_decay_style, LrDecayStyle::linear);
  EXPECT_EQ(s.lr, 0.001);
  EXPECT_EQ(s.min_lr, 0.25);
  EXPECT_EQ(s.lr_warmup_iters, 10);
  EXPECT_EQ(s.lr_decay_iters, 90);
  s = scheduler_of("WarmupCosineLR", R"(, "warmup_min_ratio": 0.5, "total_num_steps": 90)");
  EXPECT_EQ(s.lr_decay_style, LrDecayStyle::cosine);
  EXPECT_EQ(s.lr, 0.5);
  EXPECT_EQ(s.lr_warmup_init, 0.25);
  EXPECT_EQ(s.min_lr, 0.5 * 0.0001);
}

TEST_F(DeepSpeedConfigFile, CompletesTheBatchSizes) {
  const auto sizes_of = [&](const std::string& text, const Words& flags = {}) {
    const TrainingConfig t = *run(text, flags, 4).options.settings.training;
    return std::pair(t.micro_batch_size, t.global_batch_size);
  };
  EXPECT_EQ(sizes_of(R"({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2})"),
            (std::pair<std::int64_t, std::int64_t>(3, 24)));
  EXPECT_EQ(sizes_of(R"({"train_batch_size": 48, "gradient_accumulation_steps": 2})"),
            (std::pair<std::int64_t, std::int64_t>(6, 48)));
  EXPECT_EQ(sizes_of(R"({"train_batch_size": 48})"),
            (std::pair<std::int64_t, std::int64_t>(12, 48)));
  EXPECT_EQ(sizes_of(R"({"train_batch_size": 48})", {"--tensor-model-parallel-size", "2"}),
            (std::pair<std::int64_t, std::int64_t>(24, 48)));
  EXPECT_EQ(sizes_of(R"({"gradient_accumulation_steps": 2})", {"--micro-batch-size", "5"}),
            (std::pair<std::int64_t, std::int64_t>(5, 40)));
  EXPECT_EQ(sizes_of("{}", {"--micro-batch-size", "2", "--gradient-accumulation-steps", "3"}),
            (std::pair<std::int64_t, std::int64_t>(2, 24)));
  EXPECT_THAT(mistake_of(words(R"({"train_batch_size": 48, "train_micro_batch_size_per_gpu": 3,
                                   "gradient_accumulation_steps": 2})",
                               {}),
                         4),
              HasSubstr("gradient_accumulation_steps 2: does not fit global_batch_size 48 on 4 "
                        "data-parallel ranks"));
  EXPECT_THAT(mistake_of(words(R"({"train_batch_size": 50})", {}), 4), HasSubstr("does not fit"));
  EXPECT_THAT(mistake(R"({"gradient_accumulation_steps": 0})"),
              HasSubstr("gradient_accumulation_steps"));
}

TEST_F(DeepSpeedConfigFile, RefusesWhatChangesResults) {
  EXPECT_THAT(mistake(R"({"optimizer": {"type": "OneBitAdam"}})"),
              HasSubstr("ds_config.json: optimizer.type: 'OneBitAdam' is not in this version"));
  EXPECT_THAT(mistake(R"({"optimizer": {"type": "Adam", "params": {"amsgrad": true}}})"),
              HasSubstr("optimizer.params.amsgrad: 'true' is not in this version"));
  EXPECT_THAT(mistake(R"({"scheduler": {"type": "WarmupLR", "params": {}}})"),
              HasSubstr("scheduler.params.warmup_type (DeepSpeed's default): 'log' is not"));
  EXPECT_THAT(mistake(R"({"scheduler": {"type": "OneCycle", "params": {}}})"),
              AllOf(HasSubstr("'OneCycle' is not in this version"), Not(HasSubstr("warmup_type"))));
  EXPECT_THAT(mistake(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type":
                          "linear"}}})"),
              HasSubstr("is a share of optimizer.params.lr, which is not given"));
  EXPECT_THAT(mistake(R"({"zero_optimization": {"zero_quantized_gradients": true}})"),
              HasSubstr("zero_quantized_gradients: 'true' is not in this version"));
  EXPECT_THAT(mistake(R"({"curriculum_learning": {"enabled": true}})"),
              HasSubstr("curriculum_learning: '{...}' is not in this version"));
  EXPECT_THAT(mistake(R"({"gradient_cliping": 1})"), HasSubstr("did you mean gradient_clipping?"));
  EXPECT_THAT(mistake(R"({"zero_optimization": {"stage": 4}})"),
              HasSubstr("zero_optimization.stage"));
}

TEST_F(DeepSpeedConfigFile, ReportsFilesThatAreNoConfiguration) {
  EXPECT_THAT(mistake("[1]"), HasSubstr("ds_config.json"));
  EXPECT_THAT(mistake("{"), HasSubstr("ds_config.json"));
  EXPECT_THAT(mistake(R"({"gradient_clipping": 1, "gradient_clipping": 2})"),
              HasSubstr("gradient_clipping"));
  EXPECT_THAT(mistake(R"({"optimizer": 3, "zero_optimization": {"offload_param": {"device": 3}}})"),
              AllOf(HasSubstr("optimizer"), HasSubstr("offload_param.device")));
  EXPECT_THAT(mistake_of({"--deepspeed-config", folder_ / "missing.json", "--print-config"}),
              HasSubstr("missing.json"));
}

}  // namespace
}  // namespace megatron
