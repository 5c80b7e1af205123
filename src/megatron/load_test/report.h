// Shows measurements: tables for a terminal, JSON, and a drawing.
#pragma once

#include "megatron/load_test/load.h"

namespace megatron {

std::string measurements_text(const Measurements& measured);
/// Returns a table with a line for each load.
std::string comparison_text(std::span<const Measurements> loads);
JsonText measurements_json(const Measurements& measured);

/// Draws the median, p95 and p99 of the latencies over the requests per second of the loads; of a
/// single load the share of requests within a latency. Returns an SVG that is light or dark as the
/// reader's system is.
std::string latency_svg(std::span<const Measurements> loads, const std::string& title);

}  // namespace megatron
