// The connection between the launcher and a rank whose process may run several starts of a run
// (--inprocess-restart). After a failure of another rank the process offers itself, and the
// launcher gives it the environment of the next start.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/descriptor.h"

namespace megatron {

/// Names and values of environment variables.
using Variables = std::vector<std::pair<std::string, std::string>>;

/// The launcher's end.
class RankLink {
 public:
  RankLink() = default;
  /// Returns the two ends of a new connection. Both are closed on exec. Throws a UserError if there
  /// are too many descriptors.
  static std::pair<RankLink, Descriptor> open();

  bool is_open() const { return end_.is_open(); }
  /// Can be read when the process offers itself or has ended; negative without a connection.
  int descriptor() const { return end_.number(); }
  /// Returns the exit code with which the process would end, if it has offered itself.
  std::optional<int> offered_code();
  /// Makes the process run another start. Returns false if it has ended.
  bool start_again(const Variables& variables);
  /// Declines an offer: the process ends.
  void close() { end_.close(); }

 private:
  explicit RankLink(int descriptor) : end_(descriptor) {}
  Descriptor end_;
};

/// Called by a rank that would end with `code`. `link` is the rank's end of the connection. Waits
/// for the launcher. Returns the variables of the next start, or nothing if the process is to end.
std::optional<Variables> offer_process(int link, int code);

}  // namespace megatron
