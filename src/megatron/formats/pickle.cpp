// The interpreter of pickles: one function for each group of opcodes.
#include "megatron/formats/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr const char* kFix = "the file is damaged or of a kind that PyTorch does not write";
constexpr int kHighestProtocol = 5;
constexpr std::size_t kMaxIntegerBytes = 128;

/// The names of the opcodes, each after its character, and of those from byte 128 on.
constexpr std::string_view kAsciiOpcodes =
    "(MARK .STOP 0POP 1POP_MARK 2DUP FFLOAT IINT JBININT KBININT1 LLONG MBININT2 NNONE PPERSID "
    "QBINPERSID RREDUCE SSTRING TBINSTRING USHORT_BINSTRING VUNICODE XBINUNICODE aAPPEND bBUILD "
    "cGLOBAL dDICT }EMPTY_DICT eAPPENDS gGET hBINGET iINST jLONG_BINGET lLIST ]EMPTY_LIST oOBJ "
    "pPUT qBINPUT rLONG_BINPUT sSETITEM tTUPLE )EMPTY_TUPLE uSETITEMS GBINFLOAT BBINBYTES "
    "CSHORT_BINBYTES ";
constexpr std::string_view kOtherOpcodes =
    "PROTO NEWOBJ EXT1 EXT2 EXT4 TUPLE1 TUPLE2 TUPLE3 NEWTRUE NEWFALSE LONG1 LONG4 "
    "SHORT_BINUNICODE BINUNICODE8 BINBYTES8 EMPTY_SET ADDITEMS FROZENSET NEWOBJ_EX STACK_GLOBAL "
    "MEMOIZE FRAME BYTEARRAY8 NEXT_BUFFER READONLY_BUFFER ";

/// Returns the name of an opcode; "" for a byte that is none.
constexpr std::string_view opcode_name(unsigned char code) {
  unsigned char other = 0x80;
  for (std::string_view rest = kOtherOpcodes; code >= 0x80 && !rest.empty(); ++other) {
    if (other == code) return rest.substr(0, rest.find(' '));
    rest.remove_prefix(rest.find(' ') + 1);
  }
  for (std::string_view rest = kAsciiOpcodes; code < 0x80 && !rest.empty();) {
    if (rest[0] == static_cast<char>(code)) return rest.substr(1, rest.find(' ') - 1);
    rest.remove_prefix(rest.find(' ') + 1);
  }
  return "";
}

/// Returns the code of an opcode. An unknown name does not compile.
consteval unsigned char op(std::string_view name) {
  for (unsigned code = 0; code < 256; ++code)
    if (opcode_name(static_cast<unsigned char>(code)) == name)
      return static_cast<unsigned char>(code);
  throw "unknown";
}

/// Returns the bytes of a UTF-8 text whose characters are all below 256; nullopt for another.
std::optional<std::string> latin1_bytes(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
      continue;
    }
    ++i;
    if ((lead & 0xFE) != 0xC2 || i == text.size() || (text[i] & 0xC0) != 0x80) return std::nullopt;
    bytes += static_cast<char>((lead & 3) << 6 | (text[i] & 0x3F));
  }
  return bytes;
}

bool is_sequence(PickleValue value) {
  return value.is(PickleKind::list) || value.is(PickleKind::tuple);
}

}  // namespace

/// Runs the opcodes of one pickle on a stack, as Python's Unpickler does.
class PickleParser {
 public:
  PickleParser(std::string_view bytes, const std::string& source, std::uint64_t max_values,
               Pickle& pickle)
      : bytes_(bytes), source_(source), max_values_(max_values), pickle_(pickle) {}

  void run() {
    do {
      begin_ = position_;
      opcode_ = op("STOP");  // which is missing if there is no byte
      opcode_ = little<std::uint8_t>();
      if (!constant() && !container() && !object() && !stack())
        fail(opcode_name(opcode_).empty() ? "it is no opcode"
                                          : "it refers to what is outside of the file");
    } while (opcode_ != op("STOP"));
    pickle_.root_ = pop();
    pickle_.num_bytes_ = position_;
  }

 private:
  using Values = std::vector<PickleValue>;

  [[noreturn]] void fail(const std::string& what) const {
    const std::string name(opcode_name(opcode_)), byte = std::to_string(begin_);
    throw UserError({source_ + ": pickle, byte " + byte + ": " +
                         (name.empty() ? "value " + std::to_string(opcode_) : name),
                     what, kFix});
  }

  // Input.
  std::string_view take(std::uint64_t size) {
    const std::uint64_t left = bytes_.size() - position_;
    if (size > left)
      fail("it needs " + std::to_string(size) + " bytes, " + std::to_string(left) + " are left");
    position_ += size;
    return bytes_.substr(position_ - size, size);
  }
  template <class Number>
  Number little() {
    Number number;
    // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): there are that many bytes.
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("its line has no end");
    const std::string_view text = take(end + 1 - position_);
    return text.substr(0, text.size() - 1);
  }
  std::uint64_t signed_length() {
    const auto length = little<std::int32_t>();
    if (length < 0) fail("its length is negative: " + std::to_string(length));
    return static_cast<std::uint64_t>(length);
  }
  template <class Number>
  Number decimal(std::string_view digits) {
    const auto number = exact_number<Number>(digits);
    if (!number) fail("it is no number of 64 bits: " + quoted_text(digits));
    return *number;
  }

  /// Counts what costs memory. Short pickles can copy a long value often.
  void charge(std::uint64_t count) {
    num_values_ += count;
    if (num_values_ > max_values_)
      fail("there are more than " + std::to_string(max_values_) + " values");
  }

  // The stack. What lies below the last mark is out of reach.
  bool push(PickleValue value) {
    charge(1);
    stack_.push_back(value);
    return true;
  }
  PickleValue& top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("the stack has no value");
    return stack_.back();
  }
  PickleValue pop() {
    const PickleValue value = top();
    stack_.pop_back();
    return value;
  }
  Values pop_to_mark() {
    if (marks_.empty()) fail("there is no mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    Values values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }
  Values pop_some(std::size_t count) {
    Values values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  // New values.
  PickleValue make(PickleKind kind, std::string text, Values items = {}) {
    charge(1 + items.size() + text.size() / sizeof(PickleValue));
    pickle_.nodes_.push_back({std::move(text), std::move(items)});
    return {kind, &pickle_.nodes_.back()};
  }
  PickleValue make(PickleKind kind, Values items = {}) {
    return make(kind, std::string(), std::move(items));
  }
  bool push_text(PickleKind kind, std::string_view text) {
    return push(make(kind, std::string(text)));
  }
  PickleValue make_global(std::string_view module, std::string_view name) {
    if (module == "__builtin__") module = "builtins";  // as Python 2 calls them
    if (module == "copy_reg") module = "copyreg";
    return make(PickleKind::global, std::string(module) + "." + std::string(name));
  }
  bool push_persistent_id(PickleValue id) {
    pickle_.persistent_ids_.push_back(make(PickleKind::persistent_id, {id}));
    return push(pickle_.persistent_ids_.back());
  }

  // The groups of opcodes. Each returns false for an opcode of another group.
  bool constant();
  bool container();
  bool object();
  bool stack();

  PickleValue long_integer(std::string_view bytes);
  /// Returns the text of a line of protocol 0. `is_unicode`: Latin-1 with \u escapes, else quoted.
  std::string unescaped(std::string_view line, bool is_unicode);
  /// Adds values to a list, dict or set, or to what an object has of that kind.
  bool extend(PickleKind kind, const Values& values);
  PickleValue call(PickleValue callable, PickleValue args, PickleValue keywords = {});
  /// Returns what a call returns that only makes data; nullopt for other calls.
  std::optional<PickleValue> made_data(std::string_view name, const Values& args);
  bool recall(std::uint64_t index);
  bool memorize(std::uint64_t index);

  std::string_view bytes_;
  const std::string& source_;
  std::uint64_t max_values_, num_values_ = 0;
  Pickle& pickle_;
  std::size_t position_ = 0, begin_ = 0;  ///< begin_: of the opcode
  unsigned char opcode_ = 0;
  Values stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, PickleValue> memo_;
};

PickleValue PickleParser::long_integer(std::string_view bytes) {
  if (bytes.size() > kMaxIntegerBytes)
    fail("an integer of " + std::to_string(bytes.size()) + " bytes is too long");
  if (bytes.size() > sizeof(std::int64_t)) return make(PickleKind::big_integer, std::string(bytes));
  std::int64_t value = !bytes.empty() && (bytes.back() & 0x80) != 0 ? -1 : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return PickleValue(value);
}

std::string PickleParser::unescaped(std::string_view line, bool is_unicode) {
  constexpr std::string_view kEscapes = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
  if (!is_unicode) {
    if (line.size() < 2 || line.front() != line.back() || (line[0] != '\'' && line[0] != '"'))
      fail("its text is not in quotes: " + quoted_text(line));
    line = line.substr(1, line.size() - 2);
  }
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char escape = line[i] == '\\' && i + 1 < line.size() ? line[i + 1] : '\0';
    const std::size_t num_digits = is_unicode ? (escape == 'u'   ? 4
                                                 : escape == 'U' ? 8
                                                                 : 0)
                                              : (escape == 'x' ? 2 : 0);
    if (num_digits > 0) {
      const std::string_view digits = line.substr(i + 2, num_digits);
      std::uint32_t code = 0;
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      if (digits.size() < num_digits || read.ptr != digits.data() + digits.size() ||
          code > 0x10FFFF)
        fail("an escape is not complete: " + quoted_text(line));
      if (is_unicode)
        append_utf8(out, code);
      else
        out += static_cast<char>(code);
      i += 1 + num_digits;
    } else if (is_unicode) {
      append_utf8(out, static_cast<unsigned char>(line[i]));
    } else if (escape != '\0') {
      const std::size_t known = kEscapes.find(escape);
      if (known == std::string_view::npos) fail("an escape is unknown: " + quoted_text(line));
      out += kMeanings[known];
      ++i;
    } else {
      out += line[i];
    }
  }
  return out;
}

bool PickleParser::constant() {
  switch (opcode_) {
    case op("NONE"):
      return push({});
    case op("NEWTRUE"):
    case op("NEWFALSE"):
      return push(PickleValue(opcode_ == op("NEWTRUE")));
    case op("INT"):
    case op("LONG"): {
      std::string_view digits = line();
      if (digits == "00" || digits == "01") return push(PickleValue(digits == "01"));
      if (digits.ends_with('L')) digits.remove_suffix(1);
      return push(PickleValue(decimal<std::int64_t>(digits)));
    }
    case op("BININT"):
      return push(PickleValue(std::int64_t{little<std::int32_t>()}));
    case op("BININT1"):
      return push(PickleValue(std::int64_t{little<std::uint8_t>()}));
    case op("BININT2"):
      return push(PickleValue(std::int64_t{little<std::uint16_t>()}));
    case op("LONG1"):
      return push(long_integer(take(little<std::uint8_t>())));
    case op("LONG4"):
      return push(long_integer(take(signed_length())));
    case op("FLOAT"):
      return push(PickleValue(decimal<double>(line())));
    case op("BINFLOAT"):
      return push(PickleValue(std::bit_cast<double>(__builtin_bswap64(little<std::uint64_t>()))));
    case op("STRING"):
    case op("UNICODE"):
      return push_text(PickleKind::text, unescaped(line(), opcode_ == op("UNICODE")));
    case op("BINSTRING"):
      return push_text(PickleKind::text, take(signed_length()));
    case op("SHORT_BINSTRING"):
    case op("SHORT_BINUNICODE"):
      return push_text(PickleKind::text, take(little<std::uint8_t>()));
    case op("BINUNICODE"):
      return push_text(PickleKind::text, take(little<std::uint32_t>()));
    case op("BINUNICODE8"):
      return push_text(PickleKind::text, take(little<std::uint64_t>()));
    case op("SHORT_BINBYTES"):
      return push_text(PickleKind::bytes, take(little<std::uint8_t>()));
    case op("BINBYTES"):
      return push_text(PickleKind::bytes, take(little<std::uint32_t>()));
    case op("BINBYTES8"):
    case op("BYTEARRAY8"):
      return push_text(PickleKind::bytes, take(little<std::uint64_t>()));
    default:
      return false;
  }
}

bool PickleParser::extend(PickleKind kind, const Values& values) {
  PickleValue target = top();
  if (target.is(PickleKind::object) && kind != PickleKind::set) {
    const auto index = kind == PickleKind::list ? PickleNode::appended : PickleNode::entries;
    PickleValue& part = target.node_->items[index];
    if (part.is(PickleKind::none)) part = make(kind);
    target = part;
  }
  if (!target.is(kind)) fail("it adds to " + target.description());
  if (kind == PickleKind::dict && values.size() % 2 != 0) fail("a key has no value");
  target.node_->items.insert(target.node_->items.end(), values.begin(), values.end());
  return true;
}

bool PickleParser::container() {
  switch (opcode_) {
    case op("EMPTY_LIST"):
      return push(make(PickleKind::list));
    case op("EMPTY_TUPLE"):
      return push(make(PickleKind::tuple));
    case op("EMPTY_DICT"):
      return push(make(PickleKind::dict));
    case op("EMPTY_SET"):
      return push(make(PickleKind::set));
    case op("LIST"):
      return push(make(PickleKind::list, pop_to_mark()));
    case op("TUPLE"):
      return push(make(PickleKind::tuple, pop_to_mark()));
    case op("FROZENSET"):
      return push(make(PickleKind::set, pop_to_mark()));
    case op("TUPLE1"):
    case op("TUPLE2"):
    case op("TUPLE3"):
      return push(make(PickleKind::tuple, pop_some(1U + opcode_ - op("TUPLE1"))));
    case op("DICT"): {
      const Values values = pop_to_mark();
      push(make(PickleKind::dict));
      return extend(PickleKind::dict, values);
    }
    case op("APPEND"):
      return extend(PickleKind::list, pop_some(1));
    case op("APPENDS"):
      return extend(PickleKind::list, pop_to_mark());
    case op("SETITEM"):
      return extend(PickleKind::dict, pop_some(2));
    case op("SETITEMS"):
      return extend(PickleKind::dict, pop_to_mark());
    case op("ADDITEMS"):
      return extend(PickleKind::set, pop_to_mark());
    default:
      return false;
  }
}

std::optional<PickleValue> PickleParser::made_data(std::string_view name, const Values& args) {
  const bool has_items = args.size() == 1 && is_sequence(args[0]);
  const Values& items = has_items ? args[0].node_->items : args;
  charge(items.size());
  if (name == "torch.Size" && has_items) return make(PickleKind::tuple, items);
  if (name == "builtins.set" || name == "builtins.frozenset") {
    if (has_items || args.empty()) return make(PickleKind::set, items);
  } else if (name == "collections.OrderedDict" && (has_items || args.empty())) {
    Values entries;
    for (const PickleValue& pair : items) {
      if (!is_sequence(pair) || pair.node_->items.size() != 2) return std::nullopt;
      entries.insert(entries.end(), pair.node_->items.begin(), pair.node_->items.end());
    }
    return make(PickleKind::dict, std::move(entries));
  } else if (name == "_codecs.encode" || name == "builtins.bytes" || name == "builtins.bytearray") {
    if (args.empty()) return make(PickleKind::bytes);
    if (args.size() == 1 && args[0].is(PickleKind::bytes)) return args[0];
    if (args.size() != 2 || !args[0].is(PickleKind::text) || !args[1].is(PickleKind::text) ||
        !args[1].node_->text.starts_with("latin"))
      return std::nullopt;
    charge(args[0].node_->text.size() / sizeof(PickleValue));
    if (auto bytes = latin1_bytes(args[0].node_->text))
      return make(PickleKind::bytes, std::move(*bytes));
  }
  return std::nullopt;
}

PickleValue PickleParser::call(PickleValue callable, PickleValue args, PickleValue keywords) {
  if (!args.is(PickleKind::tuple)) fail("its arguments are no tuple but " + args.description());
  const std::string_view name = callable.global_name();
  if (const auto data = made_data(name, args.node_->items)) return *data;
  // How protocols 0 to 2 say that an object of class values[0] is made.
  const std::size_t num_args = args.node_->items.size();
  const bool is_new = name == "copyreg.__newobj__" && num_args > 0;
  if (is_new || (name == "copyreg._reconstructor" && num_args == 3)) {
    Values values = args.node_->items;
    callable = values[0];
    values.erase(values.begin(), values.begin() + (is_new ? 1 : 2));
    if (!is_new && values[0].is(PickleKind::none)) values.clear();
    args = make(PickleKind::tuple, std::move(values));
  }
  Values parts(PickleNode::num_parts);
  parts[PickleNode::callable] = callable;
  parts[PickleNode::args] = args;
  parts[PickleNode::keywords] = keywords;
  return make(PickleKind::object, std::move(parts));
}

bool PickleParser::object() {
  switch (opcode_) {
    case op("GLOBAL"): {
      const std::string_view module = line();
      return push(make_global(module, line()));
    }
    case op("STACK_GLOBAL"): {
      const Values names = pop_some(2);
      if (!names[0].is(PickleKind::text) || !names[1].is(PickleKind::text))
        fail("a module or a name is no text");
      return push(make_global(names[0].node_->text, names[1].node_->text));
    }
    case op("REDUCE"):
    case op("NEWOBJ"): {
      const Values values = pop_some(2);
      return push(call(values[0], values[1]));
    }
    case op("NEWOBJ_EX"): {
      const Values values = pop_some(3);
      return push(call(values[0], values[1], values[2]));
    }
    case op("INST"): {
      const std::string_view module = line();
      const PickleValue callable = make_global(module, line());
      return push(call(callable, make(PickleKind::tuple, pop_to_mark())));
    }
    case op("OBJ"): {
      Values values = pop_to_mark();
      if (values.empty()) fail("there is no class");
      const PickleValue callable = values.front();
      values.erase(values.begin());
      return push(call(callable, make(PickleKind::tuple, std::move(values))));
    }
    case op("BUILD"): {
      const PickleValue state = pop();
      if (top().is(PickleKind::dict)) return true;  // attributes of an OrderedDict
      if (!top().is(PickleKind::object)) fail("it sets the state of " + top().description());
      top().node_->items[PickleNode::state] = state;
      return true;
    }
    case op("PERSID"):
      return push_persistent_id(make(PickleKind::text, std::string(line())));
    case op("BINPERSID"):
      return push_persistent_id(pop());
    default:
      return false;
  }
}

bool PickleParser::recall(std::uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) fail("the memo has no value " + std::to_string(index));
  return push(found->second);
}

bool PickleParser::memorize(std::uint64_t index) {
  charge(1);
  memo_[index] = top();
  return true;
}

bool PickleParser::stack() {
  switch (opcode_) {
    case op("STOP"):
      return true;
    case op("PROTO"): {
      const int protocol = little<std::uint8_t>();
      if (protocol > kHighestProtocol) fail("protocol " + std::to_string(protocol) + " is unknown");
      return true;
    }
    case op("FRAME"): {
      const auto size = little<std::uint64_t>();
      take(size);  // which must be there, and has opcodes
      position_ -= size;
      return true;
    }
    case op("MARK"):
      charge(1);
      marks_.push_back(stack_.size());
      return true;
    case op("POP"):
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        pop();
      return true;
    case op("POP_MARK"):
      pop_to_mark();
      return true;
    case op("DUP"):
      return push(top());
    case op("GET"):
      return recall(decimal<std::uint64_t>(line()));
    case op("BINGET"):
      return recall(little<std::uint8_t>());
    case op("LONG_BINGET"):
      return recall(little<std::uint32_t>());
    case op("PUT"):
      return memorize(decimal<std::uint64_t>(line()));
    case op("BINPUT"):
      return memorize(little<std::uint8_t>());
    case op("LONG_BINPUT"):
      return memorize(little<std::uint32_t>());
    case op("MEMOIZE"):
      return memorize(memo_.size());
    default:
      return false;  // EXT1, EXT2, EXT4, NEXT_BUFFER, READONLY_BUFFER
  }
}

Pickle::Pickle(std::string_view bytes, const std::string& source, std::uint64_t max_values) {
  PickleParser(bytes, source, max_values, *this).run();
}

}  // namespace megatron
