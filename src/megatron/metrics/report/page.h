// Builds the report's page: summary and charts of one or several runs in a single HTML file that
// works offline.
#pragma once

#include <string>
#include <vector>

#include "megatron/metrics/report/run_log.h"

namespace megatron {

/// Returns the HTML page. The runs are embedded as JSON in `<script id="runs">`, escaped so that
/// their text cannot close the tag.
std::string report_page(const std::vector<RunLog>& runs);

}  // namespace megatron
