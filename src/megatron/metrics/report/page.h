// The report's page: summary and charts of one or several runs as one HTML file that needs no
// network.
#pragma once

#include <string>
#include <vector>

#include "megatron/metrics/report/run_log.h"

namespace megatron {

/// The whole page. The text between the tags of `<script id="runs">` is JSON; nothing in the runs
/// can break out of it.
std::string report_page(const std::vector<RunLog>& runs);

}  // namespace megatron
