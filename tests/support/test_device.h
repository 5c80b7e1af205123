// The device of the tests (MEGATRON_TEST_DEVICE, such as cuda). It is opened before the first test
// makes a tensor.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "megatron/training/run/open_device.h"

namespace megatron::testing_device {

inline std::optional<OpenedDevice>& opened() {
  static std::optional<OpenedDevice> device;
  return device;
}

class OpenDevice : public testing::Environment {
 public:
  void SetUp() override {
    const char* wanted = std::getenv("MEGATRON_TEST_DEVICE");
    if (wanted != nullptr && std::string(wanted) != "cpu") opened() = open_device(wanted);
  }
};

/// A test that compares a device with the CPU. It is skipped with a message when there is no
/// device.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!opened())
      GTEST_SKIP() << "set MEGATRON_TEST_DEVICE=cuda on a machine with a GPU to run it there";
  }
  static c10::Device device() { return opened()->device; }
};

}  // namespace megatron::testing_device
