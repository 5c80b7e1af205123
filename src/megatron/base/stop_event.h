// Ends waits for input that may never come, such as that of a pipe whose other end waits too.
#pragma once

#include "megatron/base/descriptor.h"

namespace megatron {

/// One thread waits for a descriptor while another may call set().
class StopEvent {
 public:
  /// Throws a UserError when the process has too many open files.
  StopEvent();
  /// Ends all waits, those to come too.
  void set() const noexcept;
  /// Waits until the descriptor has bytes or its end. Returns false once set() was called.
  bool wait_readable(int descriptor) const;

 private:
  Descriptor event_;
};

}  // namespace megatron
