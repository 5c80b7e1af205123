// Where the lines of the training loop go: an output stream, and a progress bar on the same
// terminal that must be cleared before lines are printed.
#pragma once

#include <iosfwd>

#include "megatron/base/progress_bar.h"

namespace megatron {

struct Console {
  std::ostream& out;
  ProgressBar& bar;

  /// Returns the stream, ready for lines.
  std::ostream& lines() const {
    bar.clear();
    return out;
  }
};

}  // namespace megatron
