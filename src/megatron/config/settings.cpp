#include "megatron/config/settings.h"

#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/legacy_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rerun_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"

namespace megatron {

Settings::Settings() = default;
Settings::Settings(const Settings&) = default;
Settings::Settings(Settings&&) noexcept = default;
Settings& Settings::operator=(const Settings&) = default;
Settings& Settings::operator=(Settings&&) noexcept = default;
Settings::~Settings() = default;

}  // namespace megatron
