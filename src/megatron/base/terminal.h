// What stands behind a file descriptor: a person's terminal (width, colours, progress bars) or a
// pipe.
#pragma once

namespace megatron {

/// Whether the descriptor is an interactive terminal.
bool is_terminal(int descriptor);

/// Columns of the terminal behind `descriptor`; else the environment's COLUMNS, else 100. Between
/// 40 and 200.
int terminal_width(int descriptor);

}  // namespace megatron
