#include "megatron/parallel/transport/call_header.h"

#include <c10/core/ScalarType.h>

#include <cstring>
#include <span>

#include "megatron/base/checksum.h"
#include "megatron/parallel/transport/parts.h"

namespace megatron {
namespace {

/// Returns the row counts that all ranks share: none of an all-to-all.
const std::vector<std::int64_t>& shared_rows(const CommCall& call) {
  static const std::vector<std::int64_t> none;
  if (call.operation == CommOperation::all_to_all) return none;
  return call.operation == CommOperation::all_gather ? call.rows.out : call.rows.in;
}

}  // namespace

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
  if (const auto& rows = shared_rows(call); !rows.empty())
    header.rows = checksum(std::as_bytes(std::span(rows)));
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
