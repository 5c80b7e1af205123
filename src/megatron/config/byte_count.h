// Sizes of memory as text.
#pragma once

#include <optional>
#include <string>

namespace megatron {

/// Returns the bytes of "20GB", "512 MiB" or "1.5e9": B, and kB to PB (powers of 1000) or KiB to
/// PiB (powers of 1024), with or without a space. Returns nullopt for other texts and for sizes
/// that are not above 0 and below 10^18 bytes.
std::optional<double> byte_count(const std::string& text);
/// Returns "1.20 GiB", "12.3 MiB" or "4.5 KiB".
std::string byte_size_text(double bytes);
/// Returns whether a budget is "auto", in letters of any case.
bool is_automatic_budget(const std::string& text);

}  // namespace megatron
