// Ends a text at stop strings, while it is generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/sampling_params.h"
#include "megatron/tokenizers/decode_stream.h"

namespace megatron {

/// Finds stop strings in a text that comes in pieces. It holds back what may be the begin of one.
/// Where the text ends does not depend on the pieces: at the first stop string that is complete,
/// the longest if several end there.
class StopStrings {
 public:
  /// With `keeps_stop` the stop string is shown, too.
  explicit StopStrings(std::vector<std::string> stops, bool keeps_stop = false)
      : stops_(std::move(stops)), keeps_stop_(keeps_stop) {}

  /// Returns the text that can be shown. A stop string may begin in a piece that `may_stop` forbids
  /// to end the text, but not end in it.
  std::string add(std::string_view piece, bool may_stop = true);
  /// Returns the text that was held back, when no more comes.
  std::string finish();

  bool has_stopped() const { return has_stopped_; }
  /// Returns the stop string that has ended the text; "" if none has.
  const std::string& stop_string() const { return stop_string_; }
  /// Returns the bytes of the pieces that are behind the text that is shown.
  std::size_t num_cut_bytes() const { return num_cut_bytes_; }

 private:
  std::vector<std::string> stops_;
  bool keeps_stop_;
  std::string held_;
  std::size_t first_end_ = 0;  ///< in held_: no stop string ends before
  std::string stop_string_;
  bool has_stopped_ = false;
  std::size_t num_cut_bytes_ = 0;
};

/// The text of ids as they come, up to a stop string.
class GeneratedText {
 public:
  /// The tokenizer must outlive the stream. `prompt` is the context of the first ids.
  GeneratedText(const Tokenizer& tokenizer, std::span<const std::int64_t> prompt,
                const SamplingParams& params);

  /// Returns the text that `id` completes and that can be shown.
  std::string add(std::int64_t id, bool may_stop = true);
  /// Returns the rest of the text.
  std::string finish();
  bool has_stopped() const { return stops_.has_stopped(); }
  const std::string& stop_string() const { return stops_.stop_string(); }
  std::size_t num_cut_bytes() const { return stops_.num_cut_bytes(); }

 private:
  DecodeStream decoder_;
  StopStrings stops_;
};

}  // namespace megatron
