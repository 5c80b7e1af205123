#include "megatron/cli/launch_output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "megatron/base/files.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxLineBytes = 1 << 16;  ///< longer lines are split
constexpr std::size_t kNumLastLines = 10;

}  // namespace

void OutputQueue::add(std::string_view text) {
  if (!is_closed_) text_ += text;
}

void OutputQueue::write_some() {
  // A pipe that is ready accepts PIPE_BUF bytes without blocking. Several launchers may write to
  // one file, so whole lines are written where that is possible.
  std::size_t size = std::min<std::size_t>(text_.size(), PIPE_BUF);
  if (size < text_.size()) {
    const std::size_t line_end = text_.rfind('\n', size - 1);
    if (line_end != std::string::npos) size = line_end + 1;
  }
  const ssize_t written = ::write(descriptor_, text_.data(), size);
  if (written >= 0) {
    text_.erase(0, static_cast<std::size_t>(written));
  } else if (errno != EAGAIN && errno != EINTR) {
    is_closed_ = true;
    if (errno != EPIPE) lost_by_ = errno;
    text_.clear();
  }
}

RankLog::RankLog(fs::path path, bool starts_empty, OutputQueue& notes)
    : path_(std::move(path)),
      notes_(notes),
      descriptor_(::open(path_.c_str(),
                         O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (starts_empty ? O_TRUNC : 0),
                         0666)) {
  if (!descriptor_.is_open()) throw_file_error("open", path_, errno);
}

void RankLog::append(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_.number(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (!has_lost_text_)
        notes_.add("note: " + path_.string() +
                   " loses output of its rank: " + std::strerror(errno) + "\n");
      has_lost_text_ = true;
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

RankStream::RankStream(int pipe, std::string prefix, Targets targets)
    : pipe_(pipe), prefix_(std::move(prefix)), targets_(std::move(targets)) {}

RankStream::~RankStream() { close(); }

void RankStream::close() {
  if (pipe_ < 0) return;
  if (!partial_.empty()) forward_line(partial_ + "\n");
  partial_.clear();
  ::close(pipe_);
  pipe_ = -1;
}

void RankStream::read_some() {
  std::array<char, kMaxLineBytes> buffer;
  const ssize_t count = ::read(pipe_, buffer.data(), buffer.size());
  if (count > 0) return take({buffer.data(), static_cast<std::size_t>(count)});
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  close();
}

bool RankStream::has_text() const {
  pollfd event{pipe_, POLLIN, 0};
  return is_open() && ::poll(&event, 1, 0) > 0;
}

void RankStream::redirect(std::string prefix, Targets targets) {
  if (!partial_.empty()) forward_line(partial_ + "\n");
  partial_.clear();
  last_lines_.clear();
  prefix_ = std::move(prefix);
  targets_ = std::move(targets);
}

void RankStream::take(std::string_view text) {
  if (targets_.log) targets_.log->append(text);
  partial_ += text;
  std::size_t from = 0;
  for (std::size_t end; (end = partial_.find('\n', from)) != std::string::npos; from = end + 1) {
    forward_line(std::string_view(partial_).substr(from, end + 1 - from));
  }
  partial_.erase(0, from);
  if (partial_.size() >= kMaxLineBytes) {
    forward_line(partial_ + "\n");
    partial_.clear();
  }
}

void RankStream::forward_line(std::string_view line) {
  if (targets_.queue != nullptr) {
    targets_.queue->add(prefix_);
    targets_.queue->add(line);
  }
  last_lines_.emplace_back(line);
  if (last_lines_.size() > kNumLastLines) last_lines_.pop_front();
}

}  // namespace megatron
