#include "megatron/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace megatron {

bool is_terminal(int descriptor) { return ::isatty(descriptor) == 1; }

int terminal_width(int descriptor) {
  winsize size{};
  int columns = 0;
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  if (columns == 0) {
    if (const char* text = std::getenv("COLUMNS")) columns = std::atoi(text);
  }
  return columns <= 0 ? 100 : std::clamp(columns, 40, 200);
}

}  // namespace megatron
