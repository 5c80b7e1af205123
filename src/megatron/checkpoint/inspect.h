// `megatron checkpoint`: prints the contents of a checkpoint or a Hugging Face directory (inspect),
// compares the weights of two (diff), and checks that one is whole (verify).
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Returns the contents of the latest checkpoint of `root`, or of the folder itself: progress,
/// architecture, tensors and files. Throws a UserError when there is no checkpoint.
Json inspect_checkpoint(const std::filesystem::path& root);

/// Formats the result of inspect_checkpoint() as text.
std::string inspection_text(const Json& inspection);

struct WeightDifference {
  std::string name;
  std::string remark;  ///< "only in A", "shapes [2] and [3]"; empty when both could be compared
  double largest = 0;  ///< max |a − b|; NaN when exactly one side is NaN somewhere
};

/// Compares every weight of both sources, ascending by name. A source is anything that --load
/// accepts.
std::vector<WeightDifference> diff_checkpoints(const std::filesystem::path& left,
                                               const std::filesystem::path& right);

/// Formats one line per differing tensor and a closing line with the count.
std::string difference_text(const std::vector<WeightDifference>& differences);

/// Checks every checksum of a native checkpoint folder, that every value is finite, and that the
/// files hold nothing that the manifest does not list. Returns the errors; each names file and
/// tensor.
std::vector<std::string> verify_folder(const std::filesystem::path& folder);

/// Verifies the latest checkpoint of `root`, or all of them, or a Hugging Face directory. Prints
/// one line per folder on `out`. Throws a UserError that lists every error.
void verify_checkpoints(const std::filesystem::path& root, bool all, std::ostream& out);

}  // namespace megatron
