// The switch of the straggler report, which HTTP requests to --straggler-ctrlr-port throw
// (`curl localhost:65535`), as in Megatron.
#pragma once

#include <atomic>
#include <optional>

#include "megatron/training/observability/http_endpoint.h"

namespace megatron {

class StragglerToggle {
 public:
  /// UserError when the port cannot be opened; 0 opens any free port.
  StragglerToggle(int port, bool is_on)
      : is_on_(is_on),
        endpoint_({.flag = "--straggler-ctrlr-port", .port = port, .path = ".*"}, [this] {
          const bool on = !is_on_.load();
          is_on_ = on;
          return std::string("straggler report: ") + (on ? "on" : "off") + "\n";
        }) {}

  bool is_on() const { return is_on_; }
  int port() const { return endpoint_.port(); }

 private:
  std::atomic<bool> is_on_;
  HttpEndpoint endpoint_;  ///< last, so that its thread ends first
};

}  // namespace megatron
