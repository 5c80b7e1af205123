#include "megatron/tokenizers/regex_class.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

namespace megatron {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;
// PCRE2 takes no surrogates, which are not in valid UTF-8, as the ends of ranges.
constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

bool is_surrogate(char32_t c) { return c >= kFirstSurrogate && c <= kLastSurrogate; }

}  // namespace

void CharacterSet::append(char32_t first, char32_t last) {
  if (!ranges_.empty() && ranges_.back().last + 1 == first) {
    ranges_.back().last = last;
  } else {
    ranges_.push_back({first, last});
  }
}

CharacterSet CharacterSet::complement() const {
  CharacterSet others;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) others.append(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCharacter) others.append(next, kLastCharacter);
  return others;
}

CharacterSet CharacterSet::intersected(const CharacterSet& other) const {
  CharacterSet both;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first), last = std::min(a->last, b->last);
    if (first <= last) both.append(first, last);
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  return both;
}

CharacterSet CharacterSet::united(const CharacterSet& other) const {
  return complement().intersected(other.complement()).complement();
}

std::string CharacterSet::class_members() const {
  std::ostringstream out;
  out << std::hex;
  for (const Range& range : ranges_) {
    const char32_t first = is_surrogate(range.first) ? kLastSurrogate + 1 : range.first;
    const char32_t last = is_surrogate(range.last) ? kFirstSurrogate - 1 : range.last;
    if (first > last) continue;
    out << "\\x{" << static_cast<std::uint32_t>(first) << '}';
    if (last != first) out << "-\\x{" << static_cast<std::uint32_t>(last) << '}';
  }
  return out.str();
}

namespace {

constexpr std::string_view kOnigurumaWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-"
    "\\x{1f169}\\x{1f170}-\\x{1f189}";
constexpr std::string_view kRustWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";

/// Letters and digits, with what Oniguruma's tables of Unicode have beyond those of PCRE2 10.42.
constexpr std::string_view kOnigurumaAlnum =
    "\\p{Nd}\\p{Alphabetic}\\x{363}-\\x{36f}\\x{c04}\\x{f82}\\x{f83}\\x{1dd3}-\\x{1de6}\\x{11080}"
    "\\x{11081}";
constexpr std::string_view kOnigurumaAlpha =
    kOnigurumaAlnum.substr(std::string_view("\\p{Nd}").size());

/// A name of POSIX with its members in Oniguruma and, in ASCII, in Rust.
struct PosixClass {
  std::string_view name, oniguruma, rust;
};
constexpr PosixClass kPosixClasses[] = {
    {"alnum", kOnigurumaAlnum, "0-9A-Za-z"},
    {"alpha", kOnigurumaAlpha, "A-Za-z"},
    {"ascii", "\\x{0}-\\x{7f}", "\\x{0}-\\x{7f}"},
    {"blank", "\\p{Zs}\\t", "\\t "},
    {"cntrl", "\\p{Cc}", "\\x{0}-\\x{1f}\\x{7f}"},
    {"digit", "\\p{Nd}", "0-9"},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}", "!-~"},
    {"lower", "\\p{Lowercase}\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}", "a-z"},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}", " -~"},
    {"punct", "\\p{P}\\p{S}", "!-\\/:-@\\[-`{-~"},
    {"space", "\\p{White_Space}", "\\t-\\r "},
    {"upper", "\\p{Uppercase}", "A-Z"},
    {"word", kOnigurumaWord, "0-9A-Za-z_"},
    {"xdigit", "0-9a-fA-F", "0-9a-fA-F"}};

const PosixClass* find_posix_class(std::string_view name) {
  const auto* const found = std::ranges::find(kPosixClasses, name, &PosixClass::name);
  return found == std::end(kPosixClasses) ? nullptr : found;
}

/// Properties that are neither categories nor scripts.
constexpr std::string_view kBinaryProperties[] = {
    "Alphabetic",  "Any",         "Cased",        "Emoji",     "Extended_Pictographic",
    "ID_Continue", "ID_Start",    "Ideographic",  "Lowercase", "Math",
    "Uppercase",   "White_Space", "XID_Continue", "XID_Start"};

/// A class in brackets: what the operators make of its operands, or all other characters.
struct Class {
  /// The union of members, as PCRE2 writes them, and of nested classes.
  struct Operand {
    bool is_subtracted = false;  ///< after --; others intersect with those before them
    std::string members = {};
    std::vector<Class> nested = {};
  };
  bool is_negated = false;
  std::vector<Operand> operands;

  /// Returns the members when PCRE2 can write the class as one list of them.
  std::optional<std::string> list() const {
    if (operands.size() != 1) return std::nullopt;
    std::string members = operands.front().members;
    for (const Class& inner : operands.front().nested) {
      const std::optional<std::string> more = inner.is_negated ? std::nullopt : inner.list();
      if (!more) return std::nullopt;
      members += *more;
    }
    return members;
  }

  /// Returns the characters of the operands, without regard to the negation.
  CharacterSet characters(const CharactersOf& characters_of) const {
    CharacterSet all = CharacterSet().complement();
    for (const Operand& operand : operands) {
      CharacterSet set;
      if (!operand.members.empty()) set = characters_of("[" + operand.members + "]");
      for (const Class& inner : operand.nested) {
        const CharacterSet members = inner.characters(characters_of);
        set = set.united(inner.is_negated ? members.complement() : members);
      }
      all = all.intersected(operand.is_subtracted ? set.complement() : set);
    }
    return all;
  }
};

class ClassReader {
 public:
  ClassReader(std::string_view pattern, std::size_t at, RegexDialect dialect)
      : in_(pattern), at_(at), dialect_(dialect) {}

  std::size_t position() const { return at_; }

  /// Reads the class whose bracket is at the position.
  Class read(int depth = 0) {
    if (depth > kMostNested) throw std::string("the classes inside [...] are nested too deeply");
    ++at_;
    Class read;
    read.is_negated = skip("^");
    read.operands.emplace_back();
    std::size_t piece = 0;  // where the members begin that no class separates
    if (skip("]")) read.operands.back().members = "\\]";
    while (!skip("]")) {
      Class::Operand& operand = read.operands.back();
      const char c = peek();
      if (at_ >= in_.size()) throw std::string("a [ has no ]");
      if (skip("&&")) {
        read.operands.emplace_back();
        piece = 0;
      } else if (dialect_ == RegexDialect::rust && skip("--")) {
        read.operands.push_back({.is_subtracted = true});
        piece = 0;
      } else if (dialect_ == RegexDialect::rust && starts_with("~~")) {
        throw std::string("the symmetric difference ~~ inside [...] is not supported");
      } else if (const std::size_t size = posix_bracket_size(); size > 0) {
        posix_bracket(size, operand);
      } else if (c == '[') {
        operand.nested.push_back(this->read(depth + 1));
        piece = operand.members.size();
      } else if (c == '\\') {
        escape(operand);
      } else if (c == '-') {
        dash(operand, operand.members.size() == piece);
      } else {
        // PCRE2 reads [^…], [:…:], [.….] and [=…=] as more than members.
        if (std::string_view("^:.=").find(c) != std::string_view::npos) operand.members += '\\';
        operand.members += c;
        ++at_;
      }
    }
    return read;
  }

 private:
  static constexpr int kMostNested = 50;

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }
  bool starts_with(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool skip(std::string_view text) {
    if (!starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  /// Returns the size of [:name:] or [:^name:] at the position; 0: there is none.
  std::size_t posix_bracket_size() const {
    if (!starts_with("[:")) return 0;
    std::size_t size = peek(2) == '^' ? 3 : 2;
    while (peek(size) >= 'a' && peek(size) <= 'z') ++size;
    return in_.substr(at_ + size).starts_with(":]") ? size + 2 : 0;
  }

  void posix_bracket(std::size_t size, Class::Operand& operand) {
    const bool is_negated = peek(2) == '^';
    const std::size_t begin = is_negated ? 3 : 2;
    const std::string_view name = in_.substr(at_ + begin, size - begin - 2);
    const PosixClass* known = find_posix_class(name);
    if (known == nullptr) throw "[:" + std::string(name) + ":] is no class of POSIX";
    add({.members = dialect_ == RegexDialect::rust ? known->rust : known->oniguruma,
         .is_negated = is_negated,
         .size = size},
        operand);
  }

  void add(const NamedClass& named, Class::Operand& operand) {
    if (named.is_negated) {
      Class others{.is_negated = true, .operands = {}};
      others.operands.push_back({.members = std::string(named.members)});
      operand.nested.push_back(std::move(others));
    } else {
      operand.members += named.members;
    }
    at_ += named.size;
  }

  void escape(Class::Operand& operand) {
    if (const auto named = posix_property(in_, at_, dialect_)) return add(*named, operand);
    const char c = peek(1);
    if (c == 'w' || c == 'h') {
      add({.members = members_of_escape(c, dialect_), .is_negated = false, .size = 2}, operand);
    } else if (c == 'W' || c == 'H') {
      const std::string_view members = members_of_escape(c == 'W' ? 'w' : 'h', dialect_);
      add({.members = members, .is_negated = true, .size = 2}, operand);
    } else {
      operand.members += translate_escape(in_, at_, dialect_);
    }
  }

  /// Reads a dash, which stands for itself at the ends of a piece of members.
  void dash(Class::Operand& operand, bool begins_piece) {
    ++at_;
    const bool ends_piece = peek() == ']' || starts_with("&&");
    if (!begins_piece && peek() == '[')
      throw std::string("a range that ends in a class, as in [a-[b]], is not supported");
    operand.members += begins_piece || ends_piece ? "\\-" : "-";
  }

  std::string_view in_;
  std::size_t at_;
  RegexDialect dialect_;
};

/// Adds the prefix sc: to the script names of \p{...}: PCRE2 reads a bare name as
/// Script_Extensions, the dialects as Script.
std::string property(std::string_view pattern, std::size_t& at) {
  const std::size_t close = pattern.find('}', at);
  if (close == std::string_view::npos) throw std::string("\\p{ without }");
  std::string_view name = pattern.substr(at + 3, close - at - 3);
  std::string prefix(pattern.substr(at, 3));
  if (name.starts_with('^')) {
    prefix += '^';
    name.remove_prefix(1);
  }
  const bool is_script =
      name.size() > 2 && std::ranges::find(kBinaryProperties, name) == std::end(kBinaryProperties);
  at = close + 1;
  return prefix + (is_script ? "sc:" : "") + std::string(name) + "}";
}

}  // namespace

std::optional<NamedClass> posix_property(std::string_view pattern, std::size_t at,
                                         RegexDialect dialect) {
  const std::string_view rest = pattern.substr(at);
  if (dialect != RegexDialect::oniguruma ||
      (!rest.starts_with("\\p{") && !rest.starts_with("\\P{")))
    return std::nullopt;
  const std::size_t close = std::min(rest.find('}'), rest.size());
  std::string name;
  for (const char c : rest.substr(3, close - 3))
    if (c != '_' && c != ' ' && c != '-')
      name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  const bool is_negated = name.starts_with('^');
  const PosixClass* known = find_posix_class(std::string_view(name).substr(is_negated ? 1 : 0));
  if (known == nullptr) return std::nullopt;
  // Unlike [:punct:], this property has no symbols.
  return NamedClass{.members = known->name == "punct" ? "\\p{P}" : known->oniguruma,
                    .is_negated = is_negated != (rest[1] == 'P'),
                    .size = close + 1};
}

std::string_view members_of_escape(char letter, RegexDialect dialect) {
  if (letter == 'h') return "0-9a-fA-F";
  return dialect == RegexDialect::oniguruma ? kOnigurumaWord : kRustWord;
}

std::string translate_escape(std::string_view pattern, std::size_t& at, RegexDialect dialect) {
  const std::string_view rest = pattern.substr(at);
  const char c = rest.size() > 1 ? rest[1] : '\0';
  if (c == 'u' && dialect == RegexDialect::oniguruma) {
    at += std::min<std::size_t>(6, rest.size());
    return "\\x{" + std::string(rest.substr(2, 4)) + "}";
  }
  if ((c == 'p' || c == 'P') && rest.size() > 2 && rest[2] == '{') return property(pattern, at);
  const std::string_view escape = rest.substr(0, 2);
  at += escape.size();
  return std::string(escape);
}

std::string translate_class(std::string_view pattern, std::size_t& at, RegexDialect dialect,
                            const CharactersOf& characters_of) {
  ClassReader reader(pattern, at, dialect);
  const Class read = reader.read();
  at = reader.position();
  const std::string open = read.is_negated ? "[^" : "[";
  if (const std::optional<std::string> list = read.list()) return open + *list + "]";
  const std::string members = read.characters(characters_of).class_members();
  if (!members.empty()) return open + members + "]";
  return read.is_negated ? "[\\x{0}-\\x{10ffff}]" : "(?!)";
}

}  // namespace megatron
