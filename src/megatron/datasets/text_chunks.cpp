#include "megatron/datasets/text_chunks.h"

#include <glob.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/datasets/parquet/parquet_stream.h"

namespace megatron {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view without_compression(std::string_view name) {
  for (const std::string_view compressed : {".gz", ".zst"}) {
    if (name.ends_with(compressed)) name.remove_suffix(compressed.size());
  }
  return name;
}

/// Appends the files of a folder and its subfolders whose names say that they hold documents, in
/// alphabetical order of their paths.
void append_folder(const fs::path& folder, const std::string& flag,
                   std::vector<std::string>& files) {
  std::vector<std::string> found;
  std::error_code code;
  for (fs::recursive_directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    const std::string_view kind = without_compression(name);
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && (kind.ends_with(".jsonl") || kind.ends_with(".json") ||
                                            kind.ends_with(".txt") || is_parquet_file(name)))
      found.push_back(entry->path().string());
  }
  if (code) throw_file_error("read folder", folder, code.value());
  if (found.empty())
    throw UserError(
        {flag + " " + folder.string() + " holds no file of documents",
         "files of a folder must end in .jsonl, .json or .txt, also with .gz or .zst, or in "
         ".parquet",
         "give other files by their names or by a glob"});
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

}  // namespace

std::vector<std::string> expand_inputs(const std::vector<std::string>& patterns,
                                       const std::string& flag) {
  std::vector<std::string> files;
  if (std::count(patterns.begin(), patterns.end(), kStandardInput) > 1)
    throw UserError({flag + " names the standard input twice", "", "give - once"});
  for (const std::string& pattern : patterns) {
    if (pattern == kStandardInput) {
      files.push_back(pattern);
      continue;
    }
    std::error_code code;
    if (fs::is_directory(pattern, code)) {
      append_folder(pattern, flag, files);
      continue;
    }
    glob_t found{};
    const int result = ::glob(pattern.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; result == 0 && i < found.gl_pathc; ++i)
      files.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (result != 0)
      throw UserError({flag + " " + pattern + " matches no file", "", "check the path"});
  }
  return files;
}

bool is_text_file(const std::string& file) { return without_compression(file).ends_with(".txt"); }

bool is_parquet_file(const std::string& file) { return file.ends_with(".parquet"); }

std::uint64_t total_file_bytes(const std::vector<std::string>& files) {
  std::uint64_t total = 0;
  for (const std::string& file : files) {
    std::error_code code;
    const auto size = fs::file_size(file, code);
    if (code) return 0;
    total += size;
  }
  return total;
}

ChunkReader::ChunkReader(std::vector<std::string> files, ChunkOptions options)
    : files_(std::move(files)), options_(std::move(options)) {}

bool ChunkReader::open_next_file() {
  if (next_file_ == files_.size()) return false;
  const std::string& file = files_[next_file_++];
  stream_ =
      is_parquet_file(file) ? open_parquet(file, options_.columns) : open_text(file, options_.stop);
  const bool is_text = options_.format == InputFormat::by_name
                           ? is_text_file(file)
                           : options_.format == InputFormat::text && !is_parquet_file(file);
  kind_ = is_text ? options_.text_kind : DocumentKind::json_line;
  line_ = 1;
  offset_ = 0;
  return true;
}

/// Returns how many bytes of `pending_` are whole documents. No document ends in the first `known`
/// bytes, which are not searched again: a document may have many chunks.
std::size_t ChunkReader::complete_size(std::size_t known) const {
  if (kind_ == DocumentKind::file) return 0;
  const std::size_t last = std::string_view(pending_).substr(known).rfind('\n');
  if (last == std::string_view::npos) return 0;
  std::size_t end = known + last;
  if (kind_ != DocumentKind::paragraph) return end + 1;
  while (end != std::string::npos && end >= known) {
    const std::size_t before = end == 0 ? std::string::npos : pending_.rfind('\n', end - 1);
    const std::size_t start = before == std::string::npos ? 0 : before + 1;
    if (is_blank(std::string_view(pending_).substr(start, end - start))) return end + 1;
    end = before;
  }
  return 0;
}

TextChunk ChunkReader::take(std::size_t size) {
  TextChunk chunk{
      .buffer = {},
      .file = files_[next_file_ - 1] == kStandardInput ? "standard input" : files_[next_file_ - 1],
      .first_line = line_,
      .kind = kind_,
      .file_bytes = finished_bytes_,
      .end = {}};
  if (stream_) chunk.file_bytes += stream_->bytes_read();
  std::string rest = pending_.substr(size);
  pending_.resize(size);
  chunk.buffer = std::exchange(pending_, std::move(rest));
  const bool has_mark = offset_ == 0 && chunk.buffer.starts_with(kByteOrderMark);
  line_ += std::count(chunk.buffer.begin(), chunk.buffer.end(), '\n');
  if (has_mark) chunk.buffer.erase(0, kByteOrderMark.size());
  chunk.buffer.append(TextChunk::kPadding, '\0');
  offset_ += size;
  chunk.end = stream_ ? InputPosition{next_file_ - 1, offset_, line_, finished_bytes_}
                      : InputPosition{.file = next_file_, .finished_bytes = finished_bytes_};
  return chunk;
}

void ChunkReader::seek(const InputPosition& position) {
  MEGATRON_CHECK(!stream_ && position.file <= files_.size(), "seek() before next()");
  next_file_ = position.file;
  finished_bytes_ = position.finished_bytes;
  if (position.offset == 0) return;
  open_next_file();
  stream_->skip(position.offset);
  offset_ = position.offset;
  line_ = position.line;
}

std::optional<TextChunk> ChunkReader::next() {
  for (;;) {
    if (!stream_ && !open_next_file()) return std::nullopt;
    const std::size_t known = pending_.size();
    std::size_t filled = known;
    pending_.resize(known + options_.chunk_size);
    while (filled < pending_.size()) {
      const std::size_t count = stream_->read(pending_.data() + filled, pending_.size() - filled);
      if (count == 0) break;
      filled += count;
    }
    const bool at_end = filled < pending_.size();
    pending_.resize(filled);
    if (at_end) {
      finished_bytes_ += stream_->bytes_read();
      stream_.reset();
      if (pending_.empty()) continue;
      return take(pending_.size());
    }
    if (const std::size_t size = complete_size(known); size > 0) return take(size);
  }
}

std::vector<TextDocument> split_documents(const TextChunk& chunk) {
  std::vector<TextDocument> documents;
  std::string_view text = chunk.text();
  if (chunk.kind == DocumentKind::file) return {{text, chunk.first_line}};
  std::int64_t number = chunk.first_line;
  bool inside = false;  // true inside a paragraph
  while (!text.empty()) {
    const std::string_view line = text.substr(
        0, text.find('\n') == std::string_view::npos ? text.size() : text.find('\n') + 1);
    text.remove_prefix(line.size());
    const bool blank = chunk.kind != DocumentKind::full_line && is_blank(line);
    if (chunk.kind == DocumentKind::paragraph && inside && !blank) {
      const char* begin = documents.back().text.data();
      documents.back().text =
          std::string_view(begin, static_cast<std::size_t>(line.data() + line.size() - begin));
    } else if (!blank) {
      documents.push_back({line, number});
    }
    inside = !blank;
    ++number;
  }
  if (chunk.kind == DocumentKind::full_line) return documents;
  for (TextDocument& document : documents) document.text = without_line_end(document.text);
  return documents;
}

}  // namespace megatron
