// Lists the regular files of a tar archive: ustar, pax (POSIX.1-2001) and GNU long names.
// Format: https://www.gnu.org/software/tar/manual/html_node/Standard.html
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "megatron/base/storage/range_reader.h"

namespace megatron {

/// A regular file of an archive.
struct TarMember {
  std::string name;
  std::uint64_t header_offset = 0;  ///< of its first header, that of a long name included
  std::uint64_t data_offset = 0, size = 0;
};

/// Reads one header after the other. Links, folders and devices are left out. Not thread-safe.
class TarReader {
 public:
  /// Starts at `offset`, which must be that of a header.
  explicit TarReader(const RangeReader& file, std::uint64_t offset = 0);

  /// Returns the next regular file; nullopt at the end of the archive, which a block of zeros
  /// marks. Throws a UserError with file and offset for a header that is damaged, and for an
  /// archive that ends without this block or within a file.
  std::optional<TarMember> next();
  /// Returns the offset of the next header.
  std::uint64_t offset() const { return offset_; }

 private:
  static constexpr std::size_t kBlockBytes = 512;
  using Block = std::array<char, kBlockBytes>;
  /// What headers before a file's own say about it.
  struct Overrides {
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
  };

  Block read_block() const;
  void check_sum(const Block& block) const;
  std::uint64_t parse_number(const Block& block, std::size_t begin, std::size_t size,
                             const char* field) const;
  std::string read_extension(std::uint64_t size) const;
  void parse_pax(const std::string& records, Overrides& overrides) const;
  void skip(std::uint64_t data_bytes);
  [[noreturn]] void damaged(const std::string& what, const std::string& got = "") const;

  const RangeReader& file_;
  std::uint64_t offset_;
};

}  // namespace megatron
