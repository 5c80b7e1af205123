#include "megatron/training/loop/start_warnings.h"

#include <ostream>

namespace megatron {

void StartWarnings::add(std::string text, std::ostream& out) {
  out << "WARNING: " << text << std::endl;
  keep(std::move(text));
}

void StartWarnings::repeat(std::ostream& out) const {
  for (const std::string& text : texts_) out << "WARNING: " << text << std::endl;
}

}  // namespace megatron
