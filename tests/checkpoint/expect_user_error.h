// Expects that an action throws one UserError whose text names what is wrong.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

inline void expect_user_error(const std::function<void()>& action,
                              const std::vector<std::string>& words, const std::string& name = {}) {
  SCOPED_TRACE(name);
  try {
    action();
    ADD_FAILURE() << "no UserError";
  } catch (const UserError& error) {
    for (const std::string& word : words) EXPECT_THAT(error.what(), testing::HasSubstr(word));
  }
}

}  // namespace megatron
