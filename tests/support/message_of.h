// Returns the text of the UserError that a call throws.
#pragma once

#include <string>

#include "megatron/base/error.h"

namespace megatron {

template <class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace megatron
