#include "megatron/parallel/activity_log.h"

#include <utility>

namespace megatron {

void ActivityLog::add(CommWait wait) {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  activities_.waits.push_back(std::move(wait));
}

void ActivityLog::add(RingStep step) {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  activities_.ring_steps.push_back(std::move(step));
}

Activities ActivityLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(activities_, {});
}

}  // namespace megatron
