// The parts of the report's page that CMake embeds from the files beside this one.
#pragma once

#include <string_view>

namespace megatron {

struct ReportAssets {
  std::string_view page, style, scales, chart, controls;
};

/// page.html, style.css and the scripts, as they are.
const ReportAssets& report_assets();

}  // namespace megatron
