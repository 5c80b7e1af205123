#include "megatron/training/run/startup_warnings.h"

#include <algorithm>
#include <ostream>

namespace megatron {

void StartupWarnings::add(std::string text, std::ostream& out) {
  if (std::ranges::find(texts_, text) != texts_.end()) return;
  out << "WARNING: " << text << std::endl;
  keep(std::move(text));
}

void StartupWarnings::repeat(std::ostream& out) const {
  for (const std::string& text : texts_) out << "WARNING: " << text << std::endl;
}

}  // namespace megatron
