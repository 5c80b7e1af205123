// A file that is appended to and made durable at checkpoints. A later process cuts it to its size
// at the last one and continues it.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/base/files.h"

namespace megatron {

class ContinuedFile {
 public:
  /// Creates the file, or with `resumed` cuts an existing one to that size. Throws a UserError if
  /// it is shorter.
  ContinuedFile(fs::path path, std::uint64_t resumed);
  ContinuedFile(ContinuedFile&&) noexcept;
  ~ContinuedFile();

  FileWriter& writer();
  /// Makes everything durable and returns the size.
  std::uint64_t checkpoint();
  /// Makes everything durable and closes the file. Only path() and remove() may follow.
  void close();
  /// Closes and removes the file.
  void remove();
  const fs::path& path() const { return path_; }

 private:
  struct Opened;
  fs::path path_;
  std::unique_ptr<Opened> opened_;
};

}  // namespace megatron
