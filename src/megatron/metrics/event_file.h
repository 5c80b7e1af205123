// TensorBoard event files: records of Event messages (tensorflow/core/util/event.proto) with a
// length and masked CRC-32C around each.
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

/// A record of TensorFlow's record files: length (u64), its masked CRC, the data, its masked CRC;
/// all little-endian.
std::string encode_tfrecord(std::string_view data);

/// TensorFlow's masked CRC: the CRC-32C turned right by 15 bits, plus 0xa282ead8.
std::uint32_t masked_crc32c(std::string_view data);

/// Tag and value of one point of one chart.
using TaggedValue = std::pair<std::string, double>;

/// Writes one event file; what is queued is lost when the process is killed before flush().
class EventFileWriter {
 public:
  /// Creates `folder`/events.out.tfevents.<seconds>.<host>.<process>.<n> with the file version as
  /// its first event. UserError when it cannot be written. After `queue_size` events the queue is
  /// written.
  EventFileWriter(const std::filesystem::path& folder, std::size_t queue_size);

  /// Points of several charts at the same x, `step`.
  void add_scalars(const std::vector<TaggedValue>& values, std::int64_t step);
  /// A text, shown by TensorBoard's text page as Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t step);
  /// Tells readers to forget every point at or past `step` that earlier files hold (SessionLog
  /// START).
  void add_session_start(std::int64_t step);
  /// Writes what is queued. A disk that is full costs these points and a warning, nothing else. A
  /// file that has vanished is made again.
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  void add(std::string_view event);
  void add_version();
  void truncate_partial_record();
  void recreate_file();

  std::filesystem::path path_;
  std::ofstream file_;
  std::uint64_t size_ = 0;  ///< of the whole records in the file
  bool has_failed_ = false, is_created_ = false;
  std::size_t queue_size_, queued_events_ = 0;
  std::string queue_;
  std::chrono::steady_clock::time_point last_flush_ = std::chrono::steady_clock::now();
};

/// One record of an event file, as far as we read it.
struct EventRecord {
  std::uint64_t end = 0;  ///< offset of the first byte after the record
  std::int64_t step = 0;
  std::string writer;             ///< source_metadata.writer of the first event
  std::vector<std::string> tags;  ///< of its summary
};

/// Calls `visitor` for each whole record from the start, until it returns false, the file ends or a
/// record is torn or damaged.
void read_events(const std::filesystem::path& path,
                 const std::function<bool(const EventRecord&)>& visitor);

/// Cuts every event file of `folder` that this program wrote after its last record of `iteration`,
/// so that a resumed run writes the rest anew. Files of other writers stay as they are.
void drop_events_after(const std::filesystem::path& folder, std::int64_t iteration);

}  // namespace megatron
