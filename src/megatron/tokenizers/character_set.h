// Sets of characters, for the classes of regular expressions that PCRE2 does not know: classes
// nested in classes, and intersections.
#pragma once

#include <string>
#include <vector>

namespace megatron {

/// A set of code points.
class CharacterSet {
 public:
  /// Adds the characters from `first` to `last`. They come after all characters of the set.
  void append(char32_t first, char32_t last);

  CharacterSet complement() const;
  CharacterSet united(const CharacterSet& other) const;
  CharacterSet intersected(const CharacterSet& other) const;

  /// Returns the members of a class of PCRE2, without its brackets; "": no character is in the set.
  std::string class_members() const;

 private:
  struct Range {
    char32_t first, last;
  };
  std::vector<Range> ranges_;  // sorted, with gaps between them
};

}  // namespace megatron
