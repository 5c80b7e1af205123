// Queries whether a file descriptor is a terminal, and how wide it is.
#pragma once

namespace megatron {

/// Returns whether the descriptor is a terminal.
bool is_terminal(int descriptor);

/// Returns the width of the terminal in columns, between 40 and 200. If the descriptor is not a
/// terminal, it is the environment variable COLUMNS, or 100 if that is unset.
int terminal_width(int descriptor);

}  // namespace megatron
