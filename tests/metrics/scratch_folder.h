// Creates a temporary folder for each test and removes it afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include "megatron/base/files.h"

namespace megatron {

class ScratchFolder : public testing::Test {
 protected:
  ~ScratchFolder() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::temp_directory_path() /
                     (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
                      "." + std::to_string(::getpid()));
};

}  // namespace megatron
