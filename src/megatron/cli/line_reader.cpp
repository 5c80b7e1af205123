#include "megatron/cli/line_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;

}  // namespace

bool LineReader::next(std::string_view& line) {
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos) return take(line, end, 1);
    searched_ = buffer_.size();
    if (at_end_) return begin_ < buffer_.size() && take(line, buffer_.size(), 0);
    fill();
  }
}

bool LineReader::take(std::string_view& line, std::size_t end, std::size_t newline) {
  line = std::string_view(buffer_).substr(begin_, end - begin_);
  begin_ = searched_ = end + newline;
  return true;
}

void LineReader::fill() {
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  if (!stop_.wait_readable(STDIN_FILENO)) {
    at_end_ = true;
    return;
  }
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kBlock);
  ssize_t count = -1;
  do count = ::read(STDIN_FILENO, buffer_.data() + size, kBlock);
  while (count < 0 && errno == EINTR);
  buffer_.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) throw UserError({"cannot read stdin", std::strerror(errno), ""});
  at_end_ = count == 0;
}

}  // namespace megatron
