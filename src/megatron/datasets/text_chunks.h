// Cuts input files into chunks of whole documents, which threads can tokenize independently.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/datasets/text_stream.h"

namespace megatron {

/// What some programs write in front of a text in UTF-8.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// The unit of an input file that forms one document.
enum class DocumentKind {
  json_line,  ///< a line of JSON
  paragraph,  ///< lines up to a blank line
  line,       ///< a line of text
  full_line,  ///< a line of text with its line end; blank lines are documents too
  file,       ///< the whole file
};

/// What files hold.
enum class InputFormat {
  by_name,  ///< text if is_text_file(), else JSON lines
  text,
  json
};

/// A place in the input between two chunks.
struct InputPosition {
  std::size_t file = 0;              ///< index of the file
  std::uint64_t offset = 0;          ///< bytes of its (decompressed) text before the place
  std::int64_t line = 1;             ///< the number of the line that begins there
  std::uint64_t finished_bytes = 0;  ///< size of the files before it
};

/// Consecutive documents of one file.
struct TextChunk {
  static constexpr std::size_t kPadding = 64;  ///< readable bytes after the text, for simdjson
  std::string buffer;                          ///< the text followed by kPadding bytes
  std::string file;
  std::int64_t first_line = 1;
  DocumentKind kind = DocumentKind::json_line;
  std::uint64_t file_bytes = 0;  ///< (compressed) bytes read of all files up to this chunk's end
  InputPosition end;             ///< where the next chunk begins
  std::string_view text() const {
    return std::string_view(buffer).substr(0, buffer.size() - kPadding);
  }
};

/// Returns the files that the patterns match, in alphabetical order per pattern. A pattern is a
/// path, a glob, a folder, which stands for all files of documents below it, or kStandardInput.
/// Throws a UserError, which names `flag`, when a pattern matches none.
std::vector<std::string> expand_inputs(const std::vector<std::string>& patterns,
                                       const std::string& flag = "--input");

/// Returns whether the name, without .gz or .zst, ends in .txt.
bool is_text_file(const std::string& file);

/// Returns whether the name ends in .parquet.
bool is_parquet_file(const std::string& file);

/// Returns the size of all files; 0 when it is unknown.
std::uint64_t total_file_bytes(const std::vector<std::string>& files);

struct ChunkOptions {
  DocumentKind text_kind = DocumentKind::paragraph;  ///< of documents in text files
  std::size_t chunk_size = std::size_t{1} << 20;     ///< bytes read at once
  InputFormat format = InputFormat::by_name;
  std::vector<std::string> columns = {};  ///< of Parquet files, whose rows are read as JSON lines
  const StopEvent* stop = nullptr;        ///< ends the standard input early once it is set
};

/// Reads files one after another. Not thread-safe.
class ChunkReader {
 public:
  ChunkReader(std::vector<std::string> files, ChunkOptions options);
  std::optional<TextChunk> next();
  /// Goes on at the end of a chunk that another reader of the same files gave. Call it before
  /// next().
  void seek(const InputPosition& position);

 private:
  bool open_next_file();
  std::size_t complete_size(std::size_t known) const;
  TextChunk take(std::size_t size);

  std::vector<std::string> files_;
  ChunkOptions options_;
  DocumentKind kind_ = DocumentKind::json_line;
  std::size_t next_file_ = 0;
  std::unique_ptr<TextStream> stream_;
  std::string pending_;
  std::int64_t line_ = 1;
  std::uint64_t offset_ = 0;  ///< bytes of the file's text that chunks have taken
  std::uint64_t finished_bytes_ = 0;
};

/// One document of a chunk and its first line: a line of JSON that is not blank, a paragraph
/// without surrounding blank lines, a line (all without the final line end), a line with its line
/// end, or the whole file.
struct TextDocument {
  std::string_view text;
  std::int64_t line = 1;
};
/// Returns the documents of a chunk in order.
std::vector<TextDocument> split_documents(const TextChunk& chunk);

}  // namespace megatron
