// The interpreter of pickles: one function for each group of opcodes.
#include "megatron/formats/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"

namespace megatron {

#define MEGATRON_PICKLE_OPCODES(X)                                                                 \
  X(MARK, '(')                                                                                     \
  X(STOP, '.') X(POP, '0') X(POP_MARK, '1') X(DUP, '2') X(FLOAT, 'F') X(INT, 'I') X(BININT, 'J')   \
      X(BININT1, 'K') X(LONG, 'L') X(BININT2, 'M') X(NONE, 'N') X(PERSID, 'P') X(BINPERSID, 'Q')   \
          X(REDUCE, 'R') X(STRING, 'S') X(BINSTRING, 'T') X(SHORT_BINSTRING, 'U') X(UNICODE, 'V')  \
              X(BINUNICODE, 'X') X(APPEND, 'a') X(BUILD, 'b') X(GLOBAL, 'c') X(DICT, 'd')          \
                  X(EMPTY_DICT, '}') X(APPENDS, 'e') X(GET, 'g') X(BINGET, 'h') X(INST, 'i')       \
                      X(LONG_BINGET, 'j') X(LIST, 'l') X(EMPTY_LIST, ']') X(OBJ, 'o') X(PUT, 'p')  \
                          X(BINPUT, 'q') X(LONG_BINPUT, 'r') X(SETITEM, 's') X(TUPLE, 't') X(      \
                              EMPTY_TUPLE, ')') X(SETITEMS, 'u') X(BINFLOAT, 'G') X(BINBYTES, 'B') \
                              X(SHORT_BINBYTES, 'C') X(PROTO, 0x80) X(NEWOBJ, 0x81) X(EXT1, 0x82)  \
                                  X(EXT2, 0x83) X(EXT4, 0x84) X(TUPLE1, 0x85) X(TUPLE2, 0x86)      \
                                      X(TUPLE3, 0x87) X(NEWTRUE, 0x88) X(NEWFALSE, 0x89)           \
                                          X(LONG1, 0x8a) X(LONG4, 0x8b) X(SHORT_BINUNICODE, 0x8c)  \
                                              X(BINUNICODE8, 0x8d) X(BINBYTES8, 0x8e)              \
                                                  X(EMPTY_SET, 0x8f) X(ADDITEMS, 0x90)             \
                                                      X(FROZENSET, 0x91) X(NEWOBJ_EX, 0x92)        \
                                                          X(STACK_GLOBAL, 0x93) X(MEMOIZE, 0x94)   \
                                                              X(FRAME, 0x95) X(BYTEARRAY8, 0x96)   \
                                                                  X(NEXT_BUFFER, 0x97)             \
                                                                      X(READONLY_BUFFER, 0x98)

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr const char* kDamaged = "the file is damaged or not one of PyTorch: copy it again";
constexpr int kHighestProtocol = 5;
constexpr std::size_t kMaxIntegerBytes = 128;

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) return put(point);
  const auto rest = [&](int shift) { put(0x80 | (point >> shift & 0x3F)); };
  if (point < 0x800) {
    put(0xC0 | point >> 6);
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    rest(6);
  } else {
    put(0xF0 | point >> 18);
    rest(12);
    rest(6);
  }
  rest(0);
}

/// Returns the bytes of a UTF-8 text whose characters are all below 256; nullopt for another.
std::optional<std::string> latin1_bytes(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else {
      const unsigned next = i + 1 < text.size() ? static_cast<unsigned char>(text[++i]) : 0U;
      if ((lead & 0xFE) != 0xC2 || (next & 0xC0) != 0x80) return std::nullopt;
      bytes += static_cast<char>((lead & 3) << 6 | (next & 0x3F));
    }
  }
  return bytes;
}

/// Returns the number that at most eight hexadecimal digits write.
std::optional<std::uint32_t> hex_number(std::string_view digits) {
  std::uint32_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  const bool is_whole = error == std::errc() && end == digits.data() + digits.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

/// Returns the decimal digits of a little-endian number in two's complement.
std::string decimal_digits(std::string_view little_endian) {
  std::vector<unsigned> bytes;
  for (const char c : little_endian) bytes.push_back(static_cast<unsigned char>(c));
  const bool is_negative = bytes.back() >= 0x80;
  unsigned carry = 1;
  for (unsigned& byte : bytes) {
    if (!is_negative) break;
    byte = (~byte & 0xFF) + carry;
    carry = byte >> 8;
    byte &= 0xFF;
  }
  std::string digits;
  while (!bytes.empty()) {
    unsigned remainder = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) {
      const unsigned value = remainder << 8 | bytes[i];
      bytes[i] = value / 10;
      remainder = value % 10;
    }
    digits += static_cast<char>('0' + remainder);
    while (!bytes.empty() && bytes.back() == 0) bytes.pop_back();
  }
  if (is_negative) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

bool is_decimal(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.size() <= 3 * kMaxIntegerBytes &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

/// Runs the opcodes of one pickle on a stack, as Python's Unpickler does.
class PickleParser {
 public:
  PickleParser(std::string_view bytes, const std::string& source, std::uint64_t max_values,
               Pickle& pickle)
      : bytes_(bytes), source_(source), max_values_(max_values), pickle_(pickle) {}

  void run() {
    while (true) {
      begin_ = position_;
      name_ = "its end";
      opcode_ = static_cast<Opcode>(take(1)[0]);
      name_ = opcode_name(opcode_);
      if (name_ == nullptr) {
        name_ = "an opcode";
        fail("it is unknown: " + std::to_string(opcode_));
      }
      if (opcode_ == STOP) break;
      if (!number() && !text() && !container() && !object() && !bookkeeping())
        fail("it refers to what is outside of the file");
    }
    pickle_.root_ = pop();
    pickle_.num_bytes_ = position_;
  }

 private:
  enum Opcode : unsigned char {
#define MEGATRON_OPCODE(NAME, CODE) NAME = (CODE),
    MEGATRON_PICKLE_OPCODES(MEGATRON_OPCODE)
#undef MEGATRON_OPCODE
  };

  /// Returns nullptr for a byte that is no opcode.
  static const char* opcode_name(Opcode opcode) {
    switch (opcode) {
#define MEGATRON_OPCODE(NAME, CODE) \
  case NAME:                        \
    return #NAME;
      MEGATRON_PICKLE_OPCODES(MEGATRON_OPCODE)
#undef MEGATRON_OPCODE
    }
    return nullptr;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError({source_ + ": byte " + std::to_string(begin_) + " of its pickle: " + name_,
                     what, kDamaged});
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
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("its line has no end");
    const std::string_view text = bytes_.substr(position_, end - position_);
    position_ = end + 1;
    return text;
  }
  std::uint64_t length_of_4_bytes() {
    const auto length = little<std::int32_t>();
    if (length < 0) fail("its length is negative: " + std::to_string(length));
    return static_cast<std::uint64_t>(length);
  }

  // The stack. What lies below the last mark is out of reach.
  bool push(PickleValue value) {
    if (++num_values_ > max_values_)
      fail("there are more than " + std::to_string(max_values_) + " values");
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
  std::vector<PickleValue> pop_to_mark() {
    if (marks_.empty()) fail("there is no mark");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleValue> values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }
  std::vector<PickleValue> pop_some(std::size_t count) {
    std::vector<PickleValue> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  // New values.
  PickleValue make(PickleKind kind, std::string text, std::vector<PickleValue> items = {}) {
    pickle_.nodes_.push_back({std::move(text), std::move(items)});
    return {kind, &pickle_.nodes_.back()};
  }
  PickleValue make(PickleKind kind, std::vector<PickleValue> items = {}) {
    return make(kind, std::string(), std::move(items));
  }
  bool push_text(PickleKind kind, std::string_view text) {
    return push(make(kind, std::string(text)));
  }
  bool push_global(std::string_view module, std::string_view name) {
    if (module == "__builtin__") module = "builtins";  // as Python 2 calls them
    if (module == "copy_reg") module = "copyreg";
    return push(make(PickleKind::global, std::string(module) + "." + std::string(name)));
  }
  bool push_persistent_id(PickleValue id) {
    pickle_.persistent_ids_.push_back(make(PickleKind::persistent_id, {id}));
    return push(pickle_.persistent_ids_.back());
  }

  bool number();
  bool text();
  bool container();
  bool object();
  bool bookkeeping();

  PickleValue long_integer(std::string_view bytes);
  PickleValue decimal_integer(std::string_view digits);
  std::string unescaped_string(std::string_view quoted);
  std::string unescaped_unicode(std::string_view escaped);
  void append(PickleValue target, std::vector<PickleValue> values);
  void set_items(PickleValue target, std::vector<PickleValue> values);
  void add_to_set(PickleValue target, std::vector<PickleValue> values);
  /// Returns the part of an object, made if it has none.
  PickleValue part(PickleValue object, PickleNode::Part index, PickleKind kind);
  void build(PickleValue target, PickleValue state);
  PickleValue call(PickleValue callable, PickleValue args, PickleValue keywords = {});
  /// Returns what a call returns that only makes data; nullopt for other calls.
  std::optional<PickleValue> made_data(std::string_view name, const std::vector<PickleValue>& args);
  bool recall(std::uint64_t index);
  bool memorize(std::uint64_t index);

  std::string_view bytes_;
  const std::string& source_;
  std::uint64_t max_values_, num_values_ = 0;
  Pickle& pickle_;
  std::size_t position_ = 0, begin_ = 0;  ///< begin_: of the opcode
  Opcode opcode_ = STOP;
  const char* name_ = "";
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, PickleValue> memo_;
};

PickleValue PickleParser::long_integer(std::string_view bytes) {
  if (bytes.size() > kMaxIntegerBytes)
    fail("an integer of " + std::to_string(bytes.size()) + " bytes is too long");
  if (bytes.size() > sizeof(std::int64_t)) return decimal_integer(decimal_digits(bytes));
  const bool is_negative = !bytes.empty() && static_cast<unsigned char>(bytes.back()) >= 0x80;
  std::int64_t value = is_negative ? -1 : 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return PickleValue(value);
}

PickleValue PickleParser::decimal_integer(std::string_view digits) {
  if (!is_decimal(digits)) fail("it is no integer of at most 384 digits: " + quoted_text(digits));
  if (const auto value = exact_number<std::int64_t>(digits)) return PickleValue(*value);
  return make(PickleKind::big_integer, std::string(digits));
}

bool PickleParser::number() {
  switch (opcode_) {
    case NONE:
      return push({});
    case NEWTRUE:
    case NEWFALSE:
      return push(PickleValue(opcode_ == NEWTRUE));
    case INT: {
      const std::string_view digits = line();
      if (digits == "00" || digits == "01") return push(PickleValue(digits == "01"));
      return push(decimal_integer(digits));
    }
    case BININT:
      return push(PickleValue(std::int64_t{little<std::int32_t>()}));
    case BININT1:
      return push(PickleValue(std::int64_t{little<std::uint8_t>()}));
    case BININT2:
      return push(PickleValue(std::int64_t{little<std::uint16_t>()}));
    case LONG: {
      std::string_view digits = line();
      if (digits.ends_with('L')) digits.remove_suffix(1);
      return push(decimal_integer(digits));
    }
    case LONG1:
      return push(long_integer(take(little<std::uint8_t>())));
    case LONG4:
      return push(long_integer(take(length_of_4_bytes())));
    case FLOAT: {
      const std::string_view digits = line();
      const auto value = exact_number<double>(digits);
      if (!value) fail("it is no number: " + quoted_text(digits));
      return push(PickleValue(*value));
    }
    case BINFLOAT: {
      const std::uint64_t bits = __builtin_bswap64(little<std::uint64_t>());
      return push(PickleValue(std::bit_cast<double>(bits)));
    }
    default:
      return false;
  }
}

std::string PickleParser::unescaped_string(std::string_view quoted) {
  if (quoted.size() < 2 || quoted.front() != quoted.back() ||
      (quoted[0] != '\'' && quoted[0] != '"'))
    fail("its text is not in quotes: " + quoted_text(quoted));
  quoted = quoted.substr(1, quoted.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    if (quoted[i] != '\\' || i + 1 == quoted.size()) {
      out += quoted[i];
      continue;
    }
    constexpr std::string_view kEscapes = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char escape = quoted[++i];
    const std::size_t known = kEscapes.find(escape);
    if (known != std::string_view::npos) {
      out += kMeanings[known];
    } else if (escape == 'x') {
      const auto byte = i + 2 < quoted.size() ? hex_number(quoted.substr(i + 1, 2)) : std::nullopt;
      if (!byte) fail("an escape is not complete: " + quoted_text(quoted));
      out += static_cast<char>(*byte);
      i += 2;
    } else {
      fail("an escape is unknown: " + quoted_text(quoted));
    }
  }
  return out;
}

std::string PickleParser::unescaped_unicode(std::string_view escaped) {
  std::string out;
  for (std::size_t i = 0; i < escaped.size(); ++i) {
    const char kind = escaped[i] == '\\' && i + 1 < escaped.size() ? escaped[i + 1] : '\0';
    if (kind != 'u' && kind != 'U') {
      append_utf8(out, static_cast<unsigned char>(escaped[i]));  // Latin-1
      continue;
    }
    const std::size_t length = kind == 'u' ? 4 : 8;
    const std::string_view digits = escaped.substr(i + 2, length);
    const auto point = digits.size() == length ? hex_number(digits) : std::nullopt;
    if (!point || *point > 0x10FFFF) fail("an escape is not complete: " + quoted_text(escaped));
    append_utf8(out, *point);
    i += 1 + length;
  }
  return out;
}

bool PickleParser::text() {
  switch (opcode_) {
    case STRING:
      return push_text(PickleKind::text, unescaped_string(line()));
    case UNICODE:
      return push_text(PickleKind::text, unescaped_unicode(line()));
    case BINSTRING:
      return push_text(PickleKind::text, take(length_of_4_bytes()));
    case SHORT_BINSTRING:
    case SHORT_BINUNICODE:
      return push_text(PickleKind::text, take(little<std::uint8_t>()));
    case BINUNICODE:
      return push_text(PickleKind::text, take(little<std::uint32_t>()));
    case BINUNICODE8:
      return push_text(PickleKind::text, take(little<std::uint64_t>()));
    case SHORT_BINBYTES:
      return push_text(PickleKind::bytes, take(little<std::uint8_t>()));
    case BINBYTES:
      return push_text(PickleKind::bytes, take(little<std::uint32_t>()));
    case BINBYTES8:
    case BYTEARRAY8:
      return push_text(PickleKind::bytes, take(little<std::uint64_t>()));
    default:
      return false;
  }
}

PickleValue PickleParser::part(PickleValue object, PickleNode::Part index, PickleKind kind) {
  PickleValue& part = object.node_->items[index];
  if (part.is(PickleKind::none)) part = make(kind);
  return part;
}

void PickleParser::append(PickleValue target, std::vector<PickleValue> values) {
  if (target.is(PickleKind::object)) target = part(target, PickleNode::appended, PickleKind::list);
  if (!target.is(PickleKind::list)) fail("it appends to " + target.description());
  std::vector<PickleValue>& items = target.node_->items;
  items.insert(items.end(), values.begin(), values.end());
}

void PickleParser::set_items(PickleValue target, std::vector<PickleValue> values) {
  if (values.size() % 2 != 0) fail("a key has no value");
  if (target.is(PickleKind::object)) target = part(target, PickleNode::entries, PickleKind::dict);
  if (!target.is(PickleKind::dict)) fail("it sets items of " + target.description());
  std::vector<PickleValue>& items = target.node_->items;
  items.insert(items.end(), values.begin(), values.end());
}

void PickleParser::add_to_set(PickleValue target, std::vector<PickleValue> values) {
  if (!target.is(PickleKind::set)) fail("it adds to " + target.description());
  std::vector<PickleValue>& items = target.node_->items;
  items.insert(items.end(), values.begin(), values.end());
}

bool PickleParser::container() {
  switch (opcode_) {
    case EMPTY_LIST:
      return push(make(PickleKind::list));
    case EMPTY_TUPLE:
      return push(make(PickleKind::tuple));
    case EMPTY_DICT:
      return push(make(PickleKind::dict));
    case EMPTY_SET:
      return push(make(PickleKind::set));
    case LIST:
      return push(make(PickleKind::list, pop_to_mark()));
    case TUPLE:
      return push(make(PickleKind::tuple, pop_to_mark()));
    case FROZENSET:
      return push(make(PickleKind::set, pop_to_mark()));
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
      return push(make(PickleKind::tuple, pop_some(1U + opcode_ - TUPLE1)));
    case DICT: {
      std::vector<PickleValue> items = pop_to_mark();
      const PickleValue dict = make(PickleKind::dict);
      set_items(dict, std::move(items));
      return push(dict);
    }
    case APPEND:
    case SETITEM: {
      std::vector<PickleValue> values = pop_some(opcode_ == APPEND ? 1 : 2);
      if (opcode_ == APPEND)
        append(top(), std::move(values));
      else
        set_items(top(), std::move(values));
      return true;
    }
    case APPENDS:
    case SETITEMS:
    case ADDITEMS: {
      std::vector<PickleValue> values = pop_to_mark();
      if (opcode_ == APPENDS)
        append(top(), std::move(values));
      else if (opcode_ == SETITEMS)
        set_items(top(), std::move(values));
      else
        add_to_set(top(), std::move(values));
      return true;
    }
    default:
      return false;
  }
}

std::optional<PickleValue> PickleParser::made_data(std::string_view name,
                                                   const std::vector<PickleValue>& args) {
  const bool has_items =
      args.size() == 1 && (args[0].is(PickleKind::list) || args[0].is(PickleKind::tuple));
  if (name == "torch.Size" && has_items)
    return args[0].is(PickleKind::tuple) ? args[0] : make(PickleKind::tuple, args[0].node_->items);
  if (name == "builtins.set" || name == "builtins.frozenset") {
    if (args.empty()) return make(PickleKind::set);
    if (has_items) return make(PickleKind::set, args[0].node_->items);
  }
  if (name == "collections.OrderedDict" && (args.empty() || has_items)) {
    std::vector<PickleValue> items;
    for (const PickleValue& pair : args.empty() ? args : args[0].node_->items) {
      if (!(pair.is(PickleKind::list) || pair.is(PickleKind::tuple)) ||
          pair.node_->items.size() != 2)
        return std::nullopt;
      items.insert(items.end(), pair.node_->items.begin(), pair.node_->items.end());
    }
    return make(PickleKind::dict, std::move(items));
  }
  const bool is_bytes = name == "builtins.bytes" || name == "builtins.bytearray";
  if (is_bytes && args.empty()) return make(PickleKind::bytes);
  if (is_bytes && args.size() == 1 && args[0].is(PickleKind::bytes)) return args[0];
  if ((is_bytes || name == "_codecs.encode") && args.size() == 2 && args[0].is(PickleKind::text) &&
      args[1].is(PickleKind::text)) {
    const std::string& encoding = args[1].node_->text;
    if (encoding != "latin1" && encoding != "latin-1") return std::nullopt;
    if (auto bytes = latin1_bytes(args[0].node_->text))
      return make(PickleKind::bytes, std::move(*bytes));
  }
  return std::nullopt;
}

PickleValue PickleParser::call(PickleValue callable, PickleValue args, PickleValue keywords) {
  if (!args.is(PickleKind::tuple)) fail("its arguments are no tuple but " + args.description());
  std::vector<PickleValue> values = args.node_->items;
  // How protocols 0 to 2 say that an object of class values[0] is made.
  const std::string_view name = callable.global_name();
  const bool is_new = name == "copyreg.__newobj__" && !values.empty();
  if (is_new || (name == "copyreg._reconstructor" && values.size() == 3)) {
    callable = values[0];
    values.erase(values.begin(), values.begin() + (is_new ? 1 : 2));
    if (!is_new && values[0].is(PickleKind::none)) values.clear();
    args = make(PickleKind::tuple, std::move(values));
  } else if (const auto data = made_data(name, values)) {
    return *data;
  }
  std::vector<PickleValue> parts(PickleNode::num_parts);
  parts[PickleNode::callable] = callable;
  parts[PickleNode::args] = args;
  parts[PickleNode::keywords] = keywords;
  return make(PickleKind::object, std::move(parts));
}

void PickleParser::build(PickleValue target, PickleValue state) {
  if (target.is(PickleKind::dict)) return;  // attributes of an OrderedDict
  if (!target.is(PickleKind::object)) fail("it sets the state of " + target.description());
  target.node_->items[PickleNode::state] = state;
}

bool PickleParser::object() {
  switch (opcode_) {
    case GLOBAL: {
      const std::string_view module = line();
      return push_global(module, line());
    }
    case STACK_GLOBAL: {
      const std::vector<PickleValue> names = pop_some(2);
      if (!names[0].is(PickleKind::text) || !names[1].is(PickleKind::text))
        fail("a module or a name is no text");
      return push_global(names[0].node_->text, names[1].node_->text);
    }
    case REDUCE:
    case NEWOBJ: {
      const std::vector<PickleValue> values = pop_some(2);
      return push(call(values[0], values[1]));
    }
    case NEWOBJ_EX: {
      const std::vector<PickleValue> values = pop_some(3);
      return push(call(values[0], values[1], values[2]));
    }
    case INST: {
      const std::string_view module = line();
      push_global(module, line());
      const PickleValue callable = pop();
      return push(call(callable, make(PickleKind::tuple, pop_to_mark())));
    }
    case OBJ: {
      std::vector<PickleValue> values = pop_to_mark();
      if (values.empty()) fail("there is no class");
      const PickleValue callable = values.front();
      values.erase(values.begin());
      return push(call(callable, make(PickleKind::tuple, std::move(values))));
    }
    case BUILD: {
      const PickleValue state = pop();
      build(top(), state);
      return true;
    }
    case PERSID: {
      const std::string_view id = line();
      return push_persistent_id(make(PickleKind::text, std::string(id)));
    }
    case BINPERSID:
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
  memo_[index] = top();
  return true;
}

bool PickleParser::bookkeeping() {
  const auto index = [&] {
    const std::string_view digits = line();
    const auto number = exact_number<std::uint64_t>(digits);
    if (!number) fail("it is no index: " + quoted_text(digits));
    return *number;
  };
  switch (opcode_) {
    case PROTO: {
      const int protocol = little<std::uint8_t>();
      if (protocol > kHighestProtocol) fail("protocol " + std::to_string(protocol) + " is unknown");
      return true;
    }
    case FRAME: {
      const auto size = little<std::uint64_t>();
      take(size);
      position_ -= size;
      return true;
    }
    case MARK:
      marks_.push_back(stack_.size());
      if (marks_.size() > max_values_) fail("there are too many marks");
      return true;
    case POP:
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        pop();
      return true;
    case POP_MARK:
      pop_to_mark();
      return true;
    case DUP:
      return push(top());
    case GET:
      return recall(index());
    case BINGET:
      return recall(little<std::uint8_t>());
    case LONG_BINGET:
      return recall(little<std::uint32_t>());
    case PUT:
      return memorize(index());
    case BINPUT:
      return memorize(little<std::uint8_t>());
    case LONG_BINPUT:
      return memorize(little<std::uint32_t>());
    case MEMOIZE:
      return memorize(memo_.size());
    default:
      return false;  // EXT1, EXT2, EXT4, NEXT_BUFFER, READONLY_BUFFER
  }
}

Pickle::Pickle(std::string_view bytes, const std::string& source, std::uint64_t max_values) {
  PickleParser(bytes, source, max_values, *this).run();
}

}  // namespace megatron
