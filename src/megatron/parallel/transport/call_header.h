// A summary of a call that ranks exchange before data moves, so that ranks whose calls disagree
// raise an error instead of mixing their tensors.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/parallel/comm.h"

namespace megatron {

struct CallHeader {
  std::int64_t elements;  ///< Of the tensor, or of one row when the call is uneven.
  std::uint64_t rows;     ///< Checksum of the row counts that all ranks share; 0 without any.
  std::int32_t peer;      ///< Root of a broadcast.
  std::uint8_t operation, reduce, scalar_type, is_uneven;
  char what[64];
};

CallHeader make_header(const CommCall& call);
/// Compares two headers of a collective.
bool is_same_call(const CallHeader& one, const CallHeader& other);
/// Compares a send with a receive: all fields but the operation must be equal.
bool is_matching_message(const CallHeader& one, const CallHeader& other);
/// Returns a text such as "all_reduce 'grad norm' (1 Float)".
std::string describe(const CallHeader& header);

}  // namespace megatron
