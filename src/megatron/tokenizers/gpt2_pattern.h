// The pattern that splits text into words for GPT-2's byte-level BPE (Radford et al., 2019).
#pragma once

#include <string_view>

namespace megatron {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace megatron
