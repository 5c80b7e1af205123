#include "megatron/metrics/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iostream>
#include <utility>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/machine.h"
#include "megatron/base/protobuf.h"
#include "megatron/base/wall_clock.h"
#include "megatron/metrics/deleted_file.h"

namespace megatron {
namespace {

// Field numbers of event.proto and summary.proto.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7,
              kSourceMetadata = 10;
constexpr int kSummaryValue = 1, kValueTag = 1, kSimpleValue = 2, kValueTensor = 8,
              kValueMetadata = 9;
constexpr std::string_view kWriter = "megatron";
constexpr std::string_view kFilePrefix = "events.out.tfevents.";
constexpr std::chrono::seconds kMaxFlushInterval{30};
constexpr std::size_t kHeaderSize = 12, kFooterSize = 4;

template <class T>
std::string little_endian(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

ProtobufWriter event_at(std::int64_t step) {
  ProtobufWriter event;
  event.add_double(kWallTime, unix_seconds());
  if (step != 0) event.add_integer(kStep, static_cast<std::uint64_t>(step));
  return event;
}

fs::path unused_name(const fs::path& folder) {
  const auto seconds = static_cast<long long>(unix_seconds());
  for (int n = 0;; ++n) {
    const fs::path path = folder / (std::string(kFilePrefix) +
                                    format("%010lld.%s.%d.%d", seconds, host_name().c_str(),
                                           static_cast<int>(::getpid()), n));
    if (!fs::exists(path)) return path;
  }
}

std::vector<std::string> summary_tags(std::string_view summary) {
  std::vector<std::string> tags;
  ProtobufReader values(summary);
  while (const auto value = values.next()) {
    if (value->field != kSummaryValue) continue;
    ProtobufReader fields(value->bytes);
    while (const auto field = fields.next()) {
      if (field->field == kValueTag) tags.emplace_back(field->bytes);
    }
  }
  return tags;
}

EventRecord parse_event(std::string_view event) {
  EventRecord record;
  ProtobufReader fields(event);
  while (const auto field = fields.next()) {
    if (field->field == kStep) record.step = static_cast<std::int64_t>(field->integer);
    if (field->field == kSummary) record.tags = summary_tags(field->bytes);
    if (field->field != kSourceMetadata) continue;
    ProtobufReader metadata(field->bytes);
    if (const auto writer = metadata.next()) record.writer = writer->bytes;
  }
  return record;
}

/// Returns whether the record's x is an iteration past `iteration`. Charts over samples have a
/// different x.
bool is_past(const EventRecord& record, std::int64_t iteration) {
  const auto is_over_iterations = [](const std::string& tag) {
    return !tag.ends_with(" vs samples");
  };
  return record.step > iteration &&
         std::any_of(record.tags.begin(), record.tags.end(), is_over_iterations);
}

/// Returns the offset after the last record to keep; nullopt for a file of another writer.
std::optional<std::uint64_t> truncation_offset(const fs::path& path, std::int64_t iteration) {
  std::optional<std::uint64_t> end;
  read_events(path, [&](const EventRecord& record) {
    if (!end && record.writer != kWriter) return false;
    if (is_past(record, iteration)) return false;
    end = record.end;
    return true;
  });
  return end;
}

/// Returns TensorFlow's masked CRC: the CRC-32C rotated right by 15 bits, plus 0xa282ead8.
std::uint32_t masked_crc32c(std::string_view data) {
  return std::rotr(crc32c(data), 15) + 0xa282ead8u;
}

}  // namespace

std::string encode_tfrecord(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc32c(length)) + std::string(data) +
         little_endian(masked_crc32c(data));
}

EventFileWriter::EventFileWriter(const fs::path& folder, std::size_t queue_size)
    : queue_size_(queue_size) {
  megatron::create_directories(folder);
  path_ = unused_name(folder);
  file_.open(path_, std::ios::binary);
  if (!file_)
    throw UserError({path_.string() + " cannot be written",
                     {},
                     "check the folder's permissions and the free space of its disk"});
  add_version();
  flush();
  is_created_ = true;
}

/// Adds the file version, the first event of every file.
void EventFileWriter::add_version() {
  add(event_at(0)
          .add_bytes(kFileVersion, "brain.Event:2")
          .add_bytes(kSourceMetadata, ProtobufWriter().add_bytes(1, kWriter).bytes())
          .bytes());
}

void EventFileWriter::add_scalars(const std::vector<TaggedValue>& values, std::int64_t step) {
  ProtobufWriter summary;
  for (const auto& [tag, value] : values) {
    summary.add_bytes(kSummaryValue, ProtobufWriter()
                                         .add_bytes(kValueTag, tag)
                                         .add_float(kSimpleValue, static_cast<float>(value))
                                         .bytes());
  }
  add(event_at(step).add_bytes(kSummary, summary.bytes()).bytes());
}

void EventFileWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  constexpr int kStringType = 7;  // DT_STRING
  const ProtobufWriter dimension = ProtobufWriter().add_integer(1, 1),
                       shape = ProtobufWriter().add_bytes(2, dimension.bytes());
  const ProtobufWriter tensor =
      ProtobufWriter().add_integer(1, kStringType).add_bytes(2, shape.bytes()).add_bytes(8, text);
  const ProtobufWriter metadata =
      ProtobufWriter().add_bytes(1, ProtobufWriter().add_bytes(1, "text").bytes());
  const ProtobufWriter value = ProtobufWriter()
                                   .add_bytes(kValueTag, tag)
                                   .add_bytes(kValueTensor, tensor.bytes())
                                   .add_bytes(kValueMetadata, metadata.bytes());
  add(event_at(step)
          .add_bytes(kSummary, ProtobufWriter().add_bytes(kSummaryValue, value.bytes()).bytes())
          .bytes());
}

void EventFileWriter::add_session_start(std::int64_t step) {
  constexpr std::uint64_t kStart = 1;
  add(event_at(step)
          .add_bytes(kSessionLog, ProtobufWriter().add_integer(1, kStart).bytes())
          .bytes());
}

void EventFileWriter::add(std::string_view event) {
  queue_ += encode_tfrecord(event);
  const bool is_old = std::chrono::steady_clock::now() - last_flush_ > kMaxFlushInterval;
  if (++queued_events_ >= queue_size_ || is_old) flush();
}

/// Creates the file and folder again after deletion; only the points written so far are lost.
void EventFileWriter::recreate_file() {
  is_created_ = false;
  reopen_deleted_file(path_, file_, "points");
  size_ = 0;
  const std::string queued = std::exchange(queue_, {});
  add_version();
  queue_ += queued;
  is_created_ = true;
}

void EventFileWriter::flush() {
  if (is_created_ && is_deleted(path_)) recreate_file();
  file_ << queue_ << std::flush;
  if (file_) {
    size_ += queue_.size();
  } else {
    truncate_partial_record();
  }
  queue_.clear();
  queued_events_ = 0;
  last_flush_ = std::chrono::steady_clock::now();
}

/// Truncates the file to its complete records after a failed write (disk full), so that later
/// records stay readable.
void EventFileWriter::truncate_partial_record() {
  if (!has_failed_)
    std::cerr << "WARNING: " << path_.string()
              << " cannot be written, events are missing: check the free space of its disk"
              << std::endl;
  has_failed_ = true;
  file_.close();  // discards the data left in its buffer
  file_.clear();
  std::error_code ignored;  // if truncation fails, readers stop at the partial record
  fs::resize_file(path_, size_, ignored);
  file_.open(path_, std::ios::binary | std::ios::app);
}

void read_events(const fs::path& path, const std::function<bool(const EventRecord&)>& visitor) {
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  const auto crc_at = [&](std::size_t offset) {
    std::uint32_t value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  for (std::size_t start = 0; bytes.size() - start >= kHeaderSize + kFooterSize;) {
    std::uint64_t length;
    std::memcpy(&length, bytes.data() + start, sizeof length);
    if (masked_crc32c(bytes.substr(start, sizeof length)) != crc_at(start + sizeof length)) return;
    if (length > bytes.size() - start - kHeaderSize - kFooterSize) return;
    const std::string_view data = bytes.substr(start + kHeaderSize, length);
    if (masked_crc32c(data) != crc_at(start + kHeaderSize + length)) return;
    start += kHeaderSize + length + kFooterSize;
    EventRecord record = parse_event(data);
    record.end = start;
    if (!visitor(record)) return;
  }
}

void drop_events_after(const fs::path& folder, std::int64_t iteration) {
  if (!fs::is_directory(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.is_regular_file() || !entry.path().filename().string().starts_with(kFilePrefix) ||
        entry.file_size() == 0)
      continue;
    const auto end = truncation_offset(entry.path(), iteration);
    if (end && *end < entry.file_size()) fs::resize_file(entry.path(), *end);
  }
}

}  // namespace megatron
