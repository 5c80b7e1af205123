// The flags of `megatron plan --faults`. The table of `plan` includes them for the help,
// plan_faults.cpp reads them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "megatron/config/field_table.h"

namespace megatron {

struct FaultPlanOptions {
  bool faults = false;
  std::string failure_mix = "llama3";
  double failure_rate_scale = 1, days = 54;
  std::int64_t gpus_per_host = 8, hosts_per_replica = 16, spare_hosts = 16;
  std::int64_t replays = 300, replay_seed = 1;
  double checkpoint_minutes = 15;
  double step_seconds = 6, save_seconds = 5, durable_seconds = 60, peer_copy_seconds = 0.02;
  double crash_seconds = 2, timeout_minutes = 10, hang_seconds = 60;
  double operator_minutes = 30, allocation_minutes = 10;
  double start_seconds = 120, load_seconds = 60;
  double in_process_start_seconds = 30, peer_load_seconds = 10;
  double slow_by_hand_minutes = 240, slow_minutes = 2, slow_speed = 0.8;
  double corruption_by_hand_minutes = 120, corruption_minutes = 10;
};

/// A time that the simulation takes as given.
struct FaultConstant {
  const char* name;  ///< of the setting
  double FaultPlanOptions::*member;
  const char* help;
  const char* source;  ///< where the default comes from
};

std::span<const FaultConstant> fault_constants();
const FieldTable<FaultPlanOptions>& fault_plan_table();

}  // namespace megatron
