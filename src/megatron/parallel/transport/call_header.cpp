#include "megatron/parallel/transport/call_header.h"

#include <c10/core/ScalarType.h>

#include <cstring>
#include <span>

#include "megatron/base/checksum.h"
#include "megatron/parallel/transport/parts.h"

namespace megatron {

CallHeader make_header(const CommCall& call) {
  CallHeader header;
  std::memset(&header, 0, sizeof(header));
  const at::Tensor& tensor = call.in.defined() ? call.in : call.out;
  header.operation = static_cast<std::uint8_t>(call.operation);
  header.reduce = static_cast<std::uint8_t>(call.reduce);
  if (tensor.defined()) {
    header.elements = call.is_uneven() ? row_elements(tensor) : tensor.numel();
    header.is_uneven = call.is_uneven();
    header.scalar_type = static_cast<std::uint8_t>(tensor.scalar_type());
  }
  if (call.operation == CommOperation::all_gather && call.is_uneven())
    header.rows = checksum(std::as_bytes(std::span(call.rows.out)));
  if (call.operation == CommOperation::broadcast)
    header.peer = static_cast<std::int32_t>(call.peer);
  std::strncpy(header.what, call.what, sizeof(header.what) - 1);
  return header;
}

bool is_same_call(const CallHeader& one, const CallHeader& other) {
  return std::memcmp(&one, &other, sizeof(CallHeader)) == 0;
}

bool is_matching_message(const CallHeader& one, const CallHeader& other) {
  return one.elements == other.elements && one.scalar_type == other.scalar_type &&
         std::strcmp(one.what, other.what) == 0;
}

std::string describe(const CallHeader& header) {
  std::string text =
      std::string(name_of(static_cast<CommOperation>(header.operation))) + " '" + header.what + "'";
  if (header.operation == static_cast<std::uint8_t>(CommOperation::barrier)) return text;
  text += header.is_uneven ? " (rows of " : " (";
  text += std::to_string(header.elements) + " " +
          c10::toString(static_cast<c10::ScalarType>(header.scalar_type));
  if (header.rows != 0) text += ", checksum of the row counts " + checksum_hex(header.rows);
  if (header.operation == static_cast<std::uint8_t>(CommOperation::broadcast))
    text += " from rank " + std::to_string(header.peer) + " of the group";
  return text + ")";
}

}  // namespace megatron
