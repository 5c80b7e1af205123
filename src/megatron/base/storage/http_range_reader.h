// Reads an object of a web server or an object store with HTTP range requests (RFC 9110, section
// 14).
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/base/storage/object_location.h"
#include "megatron/base/storage/range_reader.h"

namespace megatron {

/// When a request that failed is repeated. Lost connections, timeouts and the statuses 408, 429 and
/// 5xx may pass; other failures are reported at once.
struct RetryOptions {
  std::int64_t attempts = 8;   ///< requests in a row that make no progress; to open, at most 4
  double first_delay_s = 0.5;  ///< doubles with each failure, up to 30 s
  double timeout_s = 60;       ///< to connect, and between two parts of an answer
};

class HttpRangeReader : public RangeReader {
 public:
  /// Asks for the size. Throws a UserError if the object does not exist, may not be read, or if its
  /// server does not serve ranges.
  explicit HttpRangeReader(ObjectLocation location, const RetryOptions& retries = {});
  ~HttpRangeReader() override;

  std::string name() const override;
  std::uint64_t size() const override;
  /// Returns the ETag, or else the time of the last change.
  std::string version() const override;
  /// Goes on where a lost connection ended. Every answer must have the version and the size of the
  /// first one.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override;

 private:
  class Connections;
  std::unique_ptr<Connections> connections_;
};

}  // namespace megatron
