// The parts of the report's page, which CMake embeds from the files in this folder.
#pragma once

#include <string_view>

namespace megatron {

struct ReportAssets {
  std::string_view page, style, scales, chart, heat_map, controls;
};

/// Returns the contents of page.html, style.css and the scripts, unmodified.
const ReportAssets& report_assets();

}  // namespace megatron
