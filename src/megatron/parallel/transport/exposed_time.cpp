#include "megatron/parallel/transport/exposed_time.h"

#include <algorithm>

namespace megatron {

CommCountKey record_call(CommCounters& counters, const CommCall& call) {
  const std::size_t in = call.in.defined() ? call.in.nbytes() : 0,
                    out = call.out.defined() ? call.out.nbytes() : 0;
  counters.add_call(call.axis, name_of(call.operation), call.what,
                    static_cast<std::int64_t>(std::max(in, out)));
  return {.axis = call.axis, .operation = call.operation, .what = call.what, .peer = call.peer};
}

ScopedExposedTime::~ScopedExposedTime() {
  const double end_s = monotonic_seconds();
  const char* const operation = name_of(call_.operation);
  counters_.add_exposed(call_.axis, operation, call_.what, (end_s - begin_s_) * 1e3);
  if (counters_.activities().is_on())
    counters_.activities().add(
        CommWait{call_.axis, operation, call_.what, call_.peer, begin_s_, end_s});
}

}  // namespace megatron
