// Compares learning rate and weight decay with Megatron Core's OptimizerParamScheduler (fixtures by
// tests/parity/make_lr_fixtures.py).
#include "megatron/optimizer/param_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using testing::HasSubstr;

const std::map<std::string, LrDecayStyle> kDecayStyles{
    {"constant", LrDecayStyle::constant},
    {"linear", LrDecayStyle::linear},
    {"cosine", LrDecayStyle::cosine},
    {"inverse-square-root", LrDecayStyle::inverse_square_root},
    {"WSD", LrDecayStyle::WSD}};
const std::map<std::string, WsdDecayStyle> kWsdStyles{{"exponential", WsdDecayStyle::exponential},
                                                      {"linear", WsdDecayStyle::linear},
                                                      {"cosine", WsdDecayStyle::cosine},
                                                      {"minus_sqrt", WsdDecayStyle::minus_sqrt}};
const std::map<std::string, WeightDecayIncrStyle> kIncrementStyles{
    {"constant", WeightDecayIncrStyle::constant},
    {"linear", WeightDecayIncrStyle::linear},
    {"cosine", WeightDecayIncrStyle::cosine}};

ParamSchedule schedule_of(const Json& settings) {
  ParamSchedule schedule;
  schedule.init_lr = settings.at("init_lr");
  schedule.max_lr = settings.at("max_lr");
  schedule.min_lr = settings.at("min_lr");
  schedule.lr_warmup_steps = settings.at("lr_warmup_steps");
  schedule.lr_decay_steps = settings.at("lr_decay_steps");
  schedule.lr_decay_style = kDecayStyles.at(settings.at("lr_decay_style"));
  if (!settings.at("wsd_decay_steps").is_null())
    schedule.wsd_decay_steps = settings.at("wsd_decay_steps");
  schedule.lr_wsd_decay_style = kWsdStyles.at(settings.at("lr_wsd_decay_style"));
  schedule.start_wd = settings.at("start_wd");
  schedule.end_wd = settings.at("end_wd");
  schedule.wd_incr_steps = settings.at("wd_incr_steps");
  schedule.wd_incr_style = kIncrementStyles.at(settings.at("wd_incr_style"));
  return schedule;
}

TEST(ParamSchedule, EqualsMegatronCore) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/optimizer/fixtures/lr_schedules.json");
  ASSERT_FALSE(fixture.at("cases").empty());
  for (const Json& example : fixture.at("cases")) {
    const ParamSchedule schedule = schedule_of(example.at("settings"));
    for (const Json& point : example.at("points")) {
      const std::int64_t step = point.at("step");
      const double lr = point.at("lr"), weight_decay = point.at("weight_decay");
      EXPECT_NEAR(schedule.lr(step), lr, 1e-15 * schedule.max_lr)
          << example.at("settings") << " step " << step;
      EXPECT_NEAR(schedule.weight_decay(step), weight_decay, 1e-15)
          << example.at("settings") << " step " << step;
    }
  }
}

TEST(ParamSchedule, DecoupledRatesFollowTheSameLaw) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/optimizer/fixtures/lr_schedules.json");
  for (const Json& example : fixture.at("cases")) {
    ParamSchedule schedule = schedule_of(example.at("settings"));
    EXPECT_EQ(schedule.decoupled_lr(5), std::nullopt);
    schedule.decoupled_max_lr = schedule.max_lr;
    schedule.decoupled_min_lr = schedule.min_lr;
    schedule.max_lr *= 3;  // the decoupled rates do not depend on max_lr
    for (const Json& point : example.at("points")) {
      EXPECT_NEAR(*schedule.decoupled_lr(point.at("step")), point.at("lr").get<double>(),
                  1e-15 * schedule.max_lr);
    }
  }
}

TEST(ParamSchedule, DecoupledFloorIsThatOfTheOthersUnlessGiven) {
  Settings settings;
  settings.scheduler->lr = 1e-3;
  settings.scheduler->min_lr = 1e-4;
  settings.training->train_iters = 10;
  settings.training->global_batch_size = 1;
  EXPECT_EQ(make_param_schedule(settings).decoupled_lr(0), std::nullopt);
  settings.optimizer->decoupled_lr = 5e-3;
  EXPECT_DOUBLE_EQ(*make_param_schedule(settings).decoupled_lr(0), 5e-3);
  EXPECT_DOUBLE_EQ(*make_param_schedule(settings).decoupled_lr(10), 1e-4);
  settings.optimizer->decoupled_min_lr = 2e-3;
  EXPECT_DOUBLE_EQ(*make_param_schedule(settings).decoupled_lr(10), 2e-3);
}

SchedulerConfig scheduler_config() {
  SchedulerConfig config;
  config.lr = 1e-3;
  return config;
}

TrainingConfig training_config() {
  TrainingConfig config;
  config.global_batch_size = 32;
  config.train_iters = 100;
  return config;
}

TEST(MakeParamSchedule, IterationsAreMultipliedByTheGlobalBatch) {
  SchedulerConfig config = scheduler_config();
  config.lr_warmup_iters = 10;
  config.lr_decay_style = LrDecayStyle::WSD;
  config.lr_wsd_decay_iters = 20;
  const ParamSchedule schedule = make_param_schedule(config, training_config(), 0.1);
  EXPECT_EQ(schedule.lr_warmup_steps, 320);
  EXPECT_EQ(schedule.lr_decay_steps, 3200);
  EXPECT_EQ(schedule.wsd_decay_steps, 640);
  EXPECT_EQ(schedule.wd_incr_steps, 3200);
  EXPECT_EQ(schedule.weight_decay(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.lr(160), 0.5e-3);
}

TEST(MakeParamSchedule, DecayIterationsDoNotMoveTheWeightDecay) {
  SchedulerConfig config = scheduler_config();
  config.lr_decay_iters = 90;
  config.lr_warmup_fraction = 0.01;
  const ParamSchedule schedule = make_param_schedule(config, training_config(), 0.1);
  EXPECT_EQ(schedule.lr_decay_steps, 2880);
  EXPECT_DOUBLE_EQ(schedule.lr_warmup_steps, 28.8);
  EXPECT_EQ(schedule.wd_incr_steps, 3200);
}

TEST(MakeParamSchedule, SamplesAreTakenAsTheyAre) {
  SchedulerConfig config = scheduler_config();
  config.lr_warmup_samples = 7;
  TrainingConfig training = training_config();
  training.train_iters = 0;
  training.train_samples = 1001;
  const ParamSchedule schedule = make_param_schedule(config, training, 0.1);
  EXPECT_EQ(schedule.lr_warmup_steps, 7);
  EXPECT_EQ(schedule.lr_decay_steps, 1001);
  EXPECT_EQ(schedule.wd_incr_steps, 1001);
}

struct Mistake {
  const char* expected;
  std::function<void(SchedulerConfig&, TrainingConfig&)> make;
};

TEST(MakeParamSchedule, MistakesNameTheFlag) {
  const Mistake mistakes[] = {
      {"--lr is missing", [](auto& s, auto&) { s.lr.reset(); }},
      {"--min-lr exceeds --lr", [](auto& s, auto&) { s.min_lr = 1; }},
      {"--min-lr must not be negative", [](auto& s, auto&) { s.min_lr = -1; }},
      {"--lr-warmup-init", [](auto& s, auto&) { s.lr_warmup_init = 1; }},
      {"--lr-warmup-iters", [](auto& s, auto&) { s.lr_warmup_iters = 100; }},
      {"--lr-warmup-fraction excludes",
       [](auto& s, auto&) { s.lr_warmup_iters = 1, s.lr_warmup_fraction = 0.1; }},
      {"--lr-warmup-fraction must lie", [](auto& s, auto&) { s.lr_warmup_fraction = 1.0; }},
      {"--lr-decay-iters", [](auto& s, auto&) { s.lr_decay_iters = 0; }},
      {"--lr-wsd-decay-iters", [](auto& s, auto&) { s.lr_decay_style = LrDecayStyle::WSD; }},
      {"need --train-samples", [](auto& s, auto&) { s.lr_warmup_samples = 3; }},
      {"--train-iters", [](auto&, auto& t) { t.train_iters = 0; }},
      {"--global-batch-size", [](auto&, auto& t) { t.global_batch_size = 0; }},
      {"--start-weight-decay", [](auto& s, auto&) { s.start_weight_decay = 0.1; }},
      {"--start-weight-decay",
       [](auto& s, auto&) { s.weight_decay_incr_style = WeightDecayIncrStyle::linear; }},
      {"--end-weight-decay is below",
       [](auto& s, auto&) {
         s.weight_decay_incr_style = WeightDecayIncrStyle::cosine;
         s.start_weight_decay = 0.2, s.end_weight_decay = 0.1;
       }},
  };
  for (const Mistake& mistake : mistakes) {
    SchedulerConfig scheduler = scheduler_config();
    TrainingConfig training = training_config();
    mistake.make(scheduler, training);
    try {
      make_param_schedule(scheduler, training, 0.1);
      ADD_FAILURE() << "accepted: " << mistake.expected;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(mistake.expected));
    }
  }
}

OptimizerParamScheduler scheduler_with(double lr, LrDecayStyle style) {
  SchedulerConfig config = scheduler_config();
  config.lr = lr;
  config.lr_decay_style = style;
  return OptimizerParamScheduler(make_param_schedule(config, training_config(), 0.1));
}

TEST(OptimizerParamScheduler, ResumesWhereItStopped) {
  OptimizerParamScheduler first = scheduler_with(1e-3, LrDecayStyle::cosine), second = first;
  first.step(960);
  second.load_state_dict(parse_json(first.state().dump(), "test"), ScheduleConflict::refuse,
                         "test");
  EXPECT_EQ(second.num_steps(), 960);
  EXPECT_EQ(second.lr(), first.lr());
}

TEST(OptimizerParamScheduler, ConflictsAreResolvedAsAsked) {
  OptimizerParamScheduler saved = scheduler_with(2e-3, LrDecayStyle::cosine);
  saved.step(320);
  OptimizerParamScheduler flags = scheduler_with(1e-3, LrDecayStyle::linear);
  try {
    flags.load_state_dict(saved.state(), ScheduleConflict::refuse, "ckpt");
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("max_lr: 0.001 here, 0.002"),
                                             HasSubstr("lr_decay_style"), HasSubstr("ckpt")));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("min_lr")));
  }
  EXPECT_EQ(flags.num_steps(), 0);
  flags.load_state_dict(saved.state(), ScheduleConflict::use_flags, "ckpt");
  EXPECT_EQ(flags.lr(), scheduler_with(1e-3, LrDecayStyle::linear).schedule().lr(320));
  flags.load_state_dict(saved.state(), ScheduleConflict::use_checkpoint, "ckpt");
  EXPECT_EQ(flags.lr(), saved.lr());
}

TEST(OptimizerParamScheduler, DamagedStatesAreRefused) {
  const Json good = scheduler_with(1e-3, LrDecayStyle::cosine).state();
  for (const std::string key :
       {"num_steps", "max_lr", "lr_decay_style", "wd_incr_style", "lr_warmup_steps"}) {
    for (const Json& value : {Json(nullptr), Json(Json::array()),
                              Json(key == "num_steps" ? Json(-1) : Json("nonsense"))}) {
      Json state = good;
      state[key] = value;
      OptimizerParamScheduler scheduler = scheduler_with(1e-3, LrDecayStyle::cosine);
      EXPECT_THROW(scheduler.load_state_dict(state, ScheduleConflict::use_checkpoint, "ckpt"),
                   UserError)
          << state;
    }
    Json state = good;
    state.erase(key);
    OptimizerParamScheduler scheduler = scheduler_with(1e-3, LrDecayStyle::cosine);
    EXPECT_THROW(scheduler.load_state_dict(state, ScheduleConflict::use_checkpoint, "ckpt"),
                 UserError)
        << key;
  }
}

TEST(ScheduleConflict, BothFlagsAreOneTooMany) {
  SchedulerConfig config;
  EXPECT_EQ(schedule_conflict(config), ScheduleConflict::refuse);
  config.override_opt_param_scheduler = true;
  EXPECT_EQ(schedule_conflict(config), ScheduleConflict::use_flags);
  config.use_checkpoint_opt_param_scheduler = true;
  EXPECT_THROW(schedule_conflict(config), UserError);
}

}  // namespace
}  // namespace megatron
