#include "megatron/planner/save_interval.h"

#include <cmath>

namespace megatron {

double best_save_interval(double save_s, double failure_s) {
  if (save_s >= 2 * failure_s) return failure_s;
  const double half = save_s / (2 * failure_s);
  return std::sqrt(2 * save_s * failure_s) * (1 + std::sqrt(half) / 3 + half / 9) - save_s;
}

double lost_share(double interval_s, double save_s, double failure_s) {
  return save_s / interval_s + (interval_s + save_s) / (2 * failure_s);
}

}  // namespace megatron
