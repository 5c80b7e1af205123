#include "megatron/parallel/transport/exposed_time.h"

#include <algorithm>

namespace megatron {

CommCountKey record_call(CommCounters& counters, const CommCall& call) {
  const std::size_t in = call.in.defined() ? call.in.nbytes() : 0,
                    out = call.out.defined() ? call.out.nbytes() : 0;
  counters.add_call(call.axis, name_of(call.operation), call.what,
                    static_cast<std::int64_t>(std::max(in, out)));
  return {.axis = call.axis, .operation = call.operation, .what = call.what};
}

ScopedExposedTime::~ScopedExposedTime() {
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin_;
  counters_.add_exposed(call_.axis, name_of(call_.operation), call_.what, time.count());
}

}  // namespace megatron
