#include "megatron/training/observability/prometheus_output.h"

#include <iostream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/logger_config.h"

namespace megatron {

bool PrometheusOutput::is_wanted(const LoggerConfig& logger) {
  return !logger.prometheus_file.empty() || logger.prometheus_port;
}

PrometheusOutput::PrometheusOutput(const LoggerConfig& logger) : file_(logger.prometheus_file) {
  if (!file_.empty()) write_prometheus_file(file_, collector_.text());
  if (logger.prometheus_port)
    server_.emplace(PrometheusServer::Address{static_cast<int>(*logger.prometheus_port),
                                              logger.prometheus_host},
                    [this] { return collector_.text(); });
}

void PrometheusOutput::write_file() {
  if (file_.empty()) return;
  try {
    write_prometheus_file(file_, collector_.text());
    is_file_lost_ = false;
  } catch (const UserError& error) {
    if (!std::exchange(is_file_lost_, true))
      std::cerr << "WARNING: training continues without it: " << error.what() << std::endl;
  }
}

}  // namespace megatron
