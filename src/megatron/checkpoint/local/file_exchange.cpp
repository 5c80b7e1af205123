#include "megatron/checkpoint/local/file_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{16} << 20;
constexpr std::size_t kMaxName = 240;  ///< bytes of a file's name in its header

/// Bytes of the message before a file: its size, or −1 when it cannot be read, and its name.
constexpr std::int64_t kHeaderBytes = 8 + static_cast<std::int64_t>(kMaxName);

at::Tensor bytes_tensor(std::int64_t size) { return at::empty({size}, at::kByte); }

/// The messages of a rank's files: their number, then for each file a header and its chunks.
class FileSender {
 public:
  explicit FileSender(const FilesToSend& sent) : sent_(sent) {}

  bool is_done() const { return has_begun_ && next_ == sent_.names.size() && !is_open(); }

  /// The message is valid until the next one.
  at::Tensor next_message() {
    if (!has_begun_) return begin();
    if (!is_open()) return open();
    const auto left = static_cast<std::int64_t>(file_->size()) - position_;
    const std::int64_t size = std::min(left, kChunkBytes);
    // A message is only read, so that the map of the file need not be copied.
    const at::Tensor chunk =
        at::from_blob(const_cast<std::byte*>(file_->data()) + position_, {size}, at::kByte);
    position_ += size;
    return chunk;
  }
  const std::optional<UserError>& error() const { return error_; }

 private:
  at::Tensor begin() {
    has_begun_ = true;
    return at::full({1}, static_cast<std::int64_t>(sent_.names.size()), at::kLong);
  }
  bool is_open() const { return file_ && position_ < static_cast<std::int64_t>(file_->size()); }

  at::Tensor open() {
    const std::string& name = sent_.names[next_++];
    MEGATRON_CHECK(name.size() < kMaxName, "the file name ", name, " is too long");
    std::int64_t size = -1;
    position_ = 0;
    try {
      file_.emplace(sent_.folder / name);
      size = static_cast<std::int64_t>(file_->size());
    } catch (const UserError& error) {
      file_.reset();
      if (!error_) error_ = error;
    }
    const at::Tensor header = bytes_tensor(kHeaderBytes).zero_();
    auto* bytes = header.mutable_data_ptr<std::uint8_t>();
    std::memcpy(bytes, &size, sizeof size);
    std::ranges::copy(name, bytes + sizeof size);
    return header;
  }

  const FilesToSend& sent_;
  bool has_begun_ = false;
  std::size_t next_ = 0;
  std::optional<MappedFile> file_;
  std::int64_t position_ = 0;
  std::optional<UserError> error_;
};

/// Writes the files of another rank. After an error it takes the messages and writes nothing.
class FileReceiver {
 public:
  explicit FileReceiver(const FilesToReceive& received) : received_(received) {}

  bool is_done() const { return num_left_ == 0 && left_ == 0; }

  /// Returns the tensor that the next message must fill.
  at::Tensor next_message() {
    message_ = !num_left_   ? at::empty({1}, at::kLong)
               : left_ == 0 ? bytes_tensor(kHeaderBytes)
                            : bytes_tensor(std::min(left_, kChunkBytes));
    return message_;
  }
  /// Handles the message that filled the tensor.
  void take() {
    if (!num_left_) {
      num_left_ = message_.item<std::int64_t>();
      return;
    }
    try {
      left_ == 0 ? begin() : write();
    } catch (const UserError& error) {
      if (!error_) error_ = error;
      writer_.reset();
    }
  }
  const std::optional<UserError>& error() const { return error_; }

 private:
  void begin() {
    --*num_left_;
    const auto* bytes = message_.const_data_ptr<std::uint8_t>();
    std::int64_t size = 0;
    std::memcpy(&size, bytes, sizeof size);
    const std::string name(reinterpret_cast<const char*>(bytes) + sizeof size);
    MEGATRON_CHECK(!name.empty() && fs::path(name).filename() == name, "'", name,
                   "' is no name of a file in a folder");
    if (size < 0) throw UserError("a rank with a copy of " + name + " cannot read it");
    left_ = size;
    path_ = received_.folder / name;
    writer_ = std::make_unique<FileWriter>(written_path(), received_.files);
    if (left_ == 0) finish();
  }
  void write() {
    left_ -= message_.numel();
    if (!writer_) return;
    writer_->write(message_.const_data_ptr(), static_cast<std::size_t>(message_.numel()));
    if (left_ == 0) finish();
  }
  void finish() {
    writer_->close(/*sync=*/true);
    writer_.reset();
    if (!received_.has_readers) return;
    if (received_.files.rename(written_path(), path_) != 0)
      throw_file_error("rename to", path_, errno);
  }
  fs::path written_path() const {
    return received_.has_readers ? fs::path(path_.string() + ".tmp." + std::to_string(::getpid()))
                                 : path_;
  }

  const FilesToReceive& received_;
  std::optional<std::int64_t> num_left_;  ///< files to come; unset until the first message
  std::int64_t left_ = 0;                 ///< bytes of the current file that are not received
  fs::path path_;
  std::unique_ptr<FileWriter> writer_;
  at::Tensor message_;
  std::optional<UserError> error_;
};

}  // namespace

void exchange_files(Comm& comm, const std::optional<FilesToSend>& sent,
                    const std::optional<FilesToReceive>& received) {
  std::optional<FileSender> sender;
  std::optional<FileReceiver> receiver;
  if (sent) sender.emplace(*sent);
  if (received) receiver.emplace(*received);
  const auto sends = [&] { return sender && !sender->is_done(); };
  const auto receives = [&] { return receiver && !receiver->is_done(); };
  while (sends() || receives()) {
    at::Tensor out;  // lives until it is sent
    PendingWork sending;
    if (sends()) {
      out = sender->next_message();
      sending = comm.start_send(out, sent->to, "checkpoint files");
    }
    if (receives()) {
      comm.recv(receiver->next_message(), received->from, "checkpoint files");
      receiver->take();
    }
    if (sending) sending->wait();
  }
  if (sender && sender->error()) throw UserError(sender->error()->parts());
  if (receiver && receiver->error()) throw UserError(receiver->error()->parts());
}

void replicate_files(const OwnFiles& own, const LocalPlacement& placement, const Axis& world,
                     FileSystem& files) {
  if (!placement.has_copies) return;
  const std::vector<std::int64_t> group = replication_group(world.rank, placement.copies);
  const auto size = static_cast<std::int64_t>(group.size());
  const std::int64_t place = std::ranges::find(group, world.rank) - group.begin();
  const auto member = [&](std::int64_t distance) {
    return group[static_cast<std::size_t>((place + distance + size) % size)];
  };
  std::optional<UserError> error;
  for (std::int64_t distance = 1; distance < size; ++distance) {
    std::optional<FilesToSend> sent;
    std::optional<FilesToReceive> received;
    const std::int64_t to = member(distance), from = member(-distance);
    if (std::ranges::count(ranks_with_copies(world.rank, placement), to) > 0)
      sent = {.to = to, .folder = own.folder, .names = own.names};
    if (std::ranges::count(ranks_with_copies(from, placement), world.rank) > 0)
      received.emplace(FilesToReceive{.from = from, .folder = own.folder, .files = files});
    try {
      exchange_files(*world.comm, sent, received);
    } catch (const UserError& first) {  // the ranks behind wait for this one
      if (!error) error = first;
    }
  }
  if (error) throw UserError(error->parts());
}

}  // namespace megatron
