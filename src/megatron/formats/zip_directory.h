// Finds the records of a zip archive. https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "megatron/formats/byte_range.h"

namespace megatron {

/// Returns where in `bytes` the records of the archive lie, by name. Throws a UserError that names
/// `source` if it is damaged, or if a record is compressed or encrypted.
std::map<std::string, ByteRange> read_zip_directory(std::span<const std::byte> bytes,
                                                    const std::string& source);

}  // namespace megatron
