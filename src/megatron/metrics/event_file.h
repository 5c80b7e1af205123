// Reads and writes TensorBoard event files: Event messages (tensorflow/core/util/event.proto), each
// framed by its length and masked CRC-32C.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

/// Returns a TFRecord: length (u64), masked CRC of the length, data, masked CRC of the data; all
/// little-endian.
std::string encode_tfrecord(std::string_view data);

/// Tag and value of one point of a chart.
using TaggedValue = std::pair<std::string, double>;

/// Writes one event file. Queued events are lost if the process is killed before flush().
class EventFileWriter {
 public:
  /// Creates `folder`/events.out.tfevents.<seconds>.<host>.<process>.<n>, whose first event is the
  /// file version. The queue is written after `queue_size` events. UserError when the file cannot
  /// be written.
  EventFileWriter(const std::filesystem::path& folder, std::size_t queue_size);

  /// Adds points of several charts at the same x value, `step`.
  void add_scalars(const std::vector<TaggedValue>& values, std::int64_t step);
  /// Adds a text, which TensorBoard's text page shows as Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t step);
  /// Adds a SessionLog START event: readers discard all points at or past `step` in earlier files.
  void add_session_start(std::int64_t step);
  /// Writes the queued events. If the write fails (disk full), prints a warning and drops these
  /// events. Creates the file again if it was deleted.
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  void add(std::string_view event);
  void add_version();
  void truncate_partial_record();
  void recreate_file();

  std::filesystem::path path_;
  std::ofstream file_;
  std::uint64_t size_ = 0;  ///< bytes of complete records in the file
  bool has_failed_ = false, is_created_ = false;
  std::size_t queue_size_, queued_events_ = 0;
  std::string queue_;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

/// The fields that we read from one record of an event file.
struct EventRecord {
  std::uint64_t end = 0;  ///< offset of the first byte after the record
  std::int64_t step = 0;
  std::string writer;             ///< source_metadata.writer of the first event
  std::vector<std::string> tags;  ///< tags of its summary
};

/// Calls `visitor` for each complete record from the start of the file. Stops when it returns
/// false, at the end, or at a truncated or damaged record.
void read_events(const std::filesystem::path& path,
                 const std::function<bool(const EventRecord&)>& visitor);

/// Truncates every event file of `folder` that this program wrote after its last record of
/// `iteration`, so that a resumed run writes later events again. Files of other writers are
/// unchanged.
void drop_events_after(const std::filesystem::path& folder, std::int64_t iteration);

}  // namespace megatron
