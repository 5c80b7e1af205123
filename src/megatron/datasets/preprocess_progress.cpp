#include "megatron/datasets/preprocess_progress.h"

#include <algorithm>
#include <string>

#include "megatron/base/format.h"

namespace megatron {

PreprocessProgress::PreprocessProgress(std::ostream* log, bool is_terminal, std::int64_t interval,
                                       std::uint64_t total_file_bytes)
    : log_(log),
      is_terminal_(is_terminal),
      interval_(interval),
      next_(interval),
      total_file_bytes_(total_file_bytes) {}

double PreprocessProgress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double PreprocessProgress::fraction(std::uint64_t file_bytes) const {
  if (total_file_bytes_ == 0) return 0;
  return static_cast<double>(file_bytes) / static_cast<double>(total_file_bytes_);
}

void PreprocessProgress::resume(std::int64_t documents, std::uint64_t text_bytes,
                                std::uint64_t file_bytes) {
  earlier_documents_ = documents;
  earlier_text_bytes_ = text_bytes;
  earlier_fraction_ = fraction(file_bytes);
  next_ = documents - documents % interval_ + interval_;
}

void PreprocessProgress::update(std::int64_t documents, std::uint64_t text_bytes,
                                std::uint64_t file_bytes) {
  if (log_ == nullptr || documents < next_) return;
  next_ = documents - documents % interval_ + interval_;
  if (is_terminal_ && seconds() - last_written_ < 0.1) return;
  last_written_ = seconds();
  write(documents, text_bytes, fraction(file_bytes));
}

void PreprocessProgress::finish(std::int64_t documents, std::uint64_t text_bytes) {
  if (log_ == nullptr) return;
  write(documents, text_bytes, 1.0);
  if (is_terminal_) *log_ << std::endl;
}

void PreprocessProgress::write(std::int64_t documents, std::uint64_t text_bytes, double fraction) {
  const double elapsed = std::max(seconds(), 1e-9);
  std::string line = format(
      "Processed %lld documents (%.1f docs/s, %.2f MB/s).", static_cast<long long>(documents),
      static_cast<double>(documents - earlier_documents_) / elapsed,
      static_cast<double>(text_bytes - earlier_text_bytes_) / elapsed / 1048576.0);
  if (is_terminal_ && fraction > earlier_fraction_ && fraction < 1)
    line += format(" %.0f %%, %.0f s left", 100 * fraction,
                   elapsed * (1 - fraction) / (fraction - earlier_fraction_));
  if (is_terminal_) {
    *log_ << "\r" << line << "\x1b[K" << std::flush;
  } else {
    *log_ << line << std::endl;
  }
}

}  // namespace megatron
