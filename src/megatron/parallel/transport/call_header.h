// What a rank says of its call before data moves, so that ranks which disagree find out instead of
// mixing their tensors.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/parallel/comm.h"

namespace megatron {

struct CallHeader {
  std::int64_t elements;
  std::int32_t peer;  ///< of a broadcast
  std::uint8_t operation, reduce, scalar_type;
  char what[65];
};

CallHeader make_header(const CommCall& call);
/// For collectives; two ends of a message agree when all but the operation is equal.
bool is_same_call(const CallHeader& one, const CallHeader& other);
bool is_matching_message(const CallHeader& one, const CallHeader& other);
/// "all_reduce 'grad norm' (1 Float)".
std::string describe(const CallHeader& header);

}  // namespace megatron
