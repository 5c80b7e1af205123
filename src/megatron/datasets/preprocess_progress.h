// Prints progress lines for preprocess-data in Megatron's wording.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>

namespace megatron {

class PreprocessProgress {
 public:
  /// `log` may be null. `total_file_bytes` is 0 when unknown.
  PreprocessProgress(std::ostream* log, bool is_terminal, std::int64_t interval,
                     std::uint64_t total_file_bytes);
  /// States what an earlier run has done. Rates count only what this one does.
  void resume(std::int64_t documents, std::uint64_t text_bytes, std::uint64_t file_bytes);
  void update(std::int64_t documents, std::uint64_t text_bytes, std::uint64_t file_bytes);
  void finish(std::int64_t documents, std::uint64_t text_bytes);
  double seconds() const;

 private:
  double fraction(std::uint64_t file_bytes) const;
  void write(std::int64_t documents, std::uint64_t text_bytes, double fraction);

  std::ostream* log_;
  bool is_terminal_;
  std::int64_t interval_, next_;
  std::uint64_t total_file_bytes_;
  std::int64_t earlier_documents_ = 0;
  std::uint64_t earlier_text_bytes_ = 0;
  double earlier_fraction_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double last_written_ = -1;
};

}  // namespace megatron
