// Stacks of the threads of this process, taken while they run or wait. Hang reports show where a
// rank is that does not arrive.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct ThreadStack {
  std::int64_t thread = 0;          ///< thread id of the kernel
  std::string name;                 ///< as in /proc/self/task/<thread>/comm
  std::vector<std::string> frames;  ///< functions, innermost first
};

/// Interrupts every thread but the caller's, up to 256, and returns their stacks, the main thread's
/// first. A thread that does not answer within 0.2 s has no frames. Thread-safe; calls run one
/// after the other. Not for hot paths: interrupted system calls may return EINTR.
std::vector<ThreadStack> thread_stacks();

/// Returns the stack of the main thread, like thread_stacks(). The caller must be another thread.
ThreadStack main_thread_stack();

/// Returns the frames of a stack that say most in one line, such as "sleep < megatron::save <
/// megatron::train": the innermost one and up to `limit` functions of megatron.
std::string short_stack(const ThreadStack& stack, std::size_t limit = 4);

/// Returns the readable name of a C++ symbol without its arguments; other symbols unchanged.
std::string function_name(const std::string& symbol);

}  // namespace megatron
