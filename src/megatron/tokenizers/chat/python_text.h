// Python's functions on text, which is valid UTF-8. Places and lengths count code points.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::chat {

/// Returns whether str.isspace() holds for the character.
bool is_space(char32_t c);
/// Returns the byte at which character `index` begins; the size of the text at its end or beyond.
std::size_t byte_of_character(std::string_view text, std::size_t index);
std::vector<std::string_view> characters_of(std::string_view text);

enum class Side { left, right, both };
/// Removes white space, as str.strip() does.
std::string_view strip(std::string_view text, Side side);
/// Removes the characters of `set` from the ends.
std::string_view strip(std::string_view text, std::string_view set, Side side);

std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);

/// str.split() and str.rsplit() at white space; `limit` < 0: no limit.
std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t limit,
                                             bool from_right);
/// str.split(separator) and str.rsplit(separator). The separator is not empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t limit, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// Returns where `part` occurs first at or after `from`; npos without. Takes linear time.
std::size_t find_part(std::string_view text, std::string_view part, std::size_t from = 0);
/// Returns where `part` occurs last; npos without. Takes linear time.
std::size_t find_last_part(std::string_view text, std::string_view part);
/// str.replace(); `limit` < 0: all.
std::string replace_all(std::string_view text, std::string_view old, std::string_view by,
                        std::int64_t limit);
/// Returns how often `part` occurs without overlaps.
std::int64_t count_parts(std::string_view text, std::string_view part);

/// The predicates str.isalpha(), str.isdigit(), …
enum class TextClass { alpha, digit, decimal, alnum, space, lower, upper };
bool is_class(std::string_view text, TextClass which);

/// Returns repr(text).
std::string text_repr(std::string_view text);
/// Returns the text with & < > ' " as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace megatron::chat
