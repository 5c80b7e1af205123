// A training run. setup.h builds it from settings, train_loop.h runs it. Functions and classes take
// the parts that they need instead of the whole.
#pragma once

#include "megatron/training/loop/training_services.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct Trainer {
  const TrainingPlan plan;
  TrainingState state;
  TrainingServices services;
};

}  // namespace megatron
