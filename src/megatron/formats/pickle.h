// Reads Python's pickles, protocols 0 to 5, as plain data. Nothing of what a pickle names is
// imported, called or built: a call is a value that says what would be called, and with what. The
// opcodes are those of Python's Lib/pickletools.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  big_integer,  ///< beyond 64 bits; only its bytes() are known
  real,
  bytes,  ///< bytes, bytearray
  text,   ///< str as UTF-8, which is not checked; a str of Python 2 may hold any bytes
  list,
  tuple,
  dict,
  set,     ///< set, frozenset
  global,  ///< a function or class that is only named
  object,  ///< a call of a global, with what the pickle adds to its result
  persistent_id,
};

class PickleValue;

/// The content of a value that is no number. Owned by its Pickle.
struct PickleNode {
  /// Where `items` of an object has its parts.
  enum Part : std::size_t { callable, args, keywords, state, appended, entries, num_parts };

  std::string text;
  std::vector<PickleValue> items;  ///< a dict's keys and values alternate
};

/// A key of a dict, or the name of an attribute, and its value.
struct PickleEntry;

/// One value of a pickle, which must outlive it. Copies are cheap and share what they refer to. A
/// pickle may refer to a value from several places, and to a value from within itself: whoever
/// descends needs a limit of depth and a limit of visits.
///
/// Accessors that take `what`, the name of the value in messages, throw a UserError that begins
/// with it if the value is of another kind. The caller adds the file to the message.
class PickleValue {
 public:
  PickleValue() = default;
  explicit PickleValue(bool value) : kind_(PickleKind::boolean), integer_(value) {}
  explicit PickleValue(std::int64_t value) : kind_(PickleKind::integer), integer_(value) {}
  explicit PickleValue(double value) : kind_(PickleKind::real), real_(value) {}

  PickleKind kind() const { return kind_; }
  bool is(PickleKind kind) const { return kind_ == kind; }
  /// Returns what the value is, for messages: "a list", "the integer 3", "an object of a.B".
  std::string description() const;

  bool boolean(std::string_view what) const;
  std::int64_t integer(std::string_view what) const;
  /// Returns a real number, or an integer as one.
  double real(std::string_view what) const;
  const std::string& text(std::string_view what) const;
  /// Returns bytes, a text, or the little-endian bytes of a big integer in two's complement.
  const std::string& bytes(std::string_view what) const;
  /// Returns the elements of a list, tuple or set.
  const std::vector<PickleValue>& items(std::string_view what) const;
  /// Returns the elements of a list or tuple of integers.
  std::vector<std::int64_t> integers(std::string_view what) const;

  /// Returns "module.name" of a global; "" for any other value.
  std::string_view global_name() const;
  /// Returns whether it is an object whose callable is the global of that name.
  bool is_object_of(std::string_view name) const;
  /// Parts of an object; None for any other value, and where the pickle sets none.
  PickleValue callable() const { return part(PickleNode::callable); }  ///< usually a global
  PickleValue args() const { return part(PickleNode::args); }          ///< a tuple
  PickleValue keywords() const { return part(PickleNode::keywords); }  ///< a dict
  PickleValue state() const { return part(PickleNode::state); }  ///< usually a dict of attributes
  PickleValue appended() const { return part(PickleNode::appended); }  ///< a list
  /// Returns what a persistent id is; None for any other value.
  PickleValue persistent_id() const;

  /// Returns the entries of a dict or of an object that is a kind of dict, in order; else the
  /// attributes of an object, such as an argparse.Namespace or a dataclass.
  std::vector<PickleEntry> entries(std::string_view what) const;
  /// Returns the value of the last entry with this key; nullopt if there is none or the value has
  /// no entries.
  std::optional<PickleValue> find(std::string_view key) const;
  /// Like find(), but throws a UserError that names `what` and the key if there is none.
  PickleValue at(std::string_view key, std::string_view what) const;

 private:
  friend class PickleParser;
  PickleValue(PickleKind kind, PickleNode* node) : kind_(kind), node_(node) {}
  bool has_node() const;
  PickleValue part(PickleNode::Part index) const;
  /// Returns the dict whose entries are those of the value; None if there is none.
  PickleValue dict() const;
  const PickleNode& require(bool is_right, std::string_view what, const char* expected) const;

  PickleKind kind_ = PickleKind::none;
  union {
    std::int64_t integer_ = 0;  ///< also a boolean
    double real_;
    PickleNode* node_;
  };
};

struct PickleEntry {
  PickleValue key, value;
};

/// How many values a pickle may have, where each place that holds one counts, and texts count by
/// their length. Each costs at most 100 bytes of memory.
inline constexpr std::uint64_t kMaxPickleValues = 100'000'000;

/// A pickle in memory. Calls of what only makes data are replaced by their result: OrderedDict
/// (whose attributes are dropped), torch.Size, set, frozenset, bytes, bytearray, _codecs.encode.
class Pickle {
 public:
  Pickle() = default;
  /// Reads the pickle that `bytes` begin with, and keeps no reference to them. Throws a UserError
  /// that names `source`, the byte and the opcode.
  Pickle(std::string_view bytes, const std::string& source,
         std::uint64_t max_values = kMaxPickleValues);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;
  Pickle(Pickle&&) noexcept = default;
  Pickle& operator=(Pickle&&) noexcept = default;
  ~Pickle() = default;

  const PickleValue& root() const { return root_; }
  /// Returns the number of bytes of the pickle.
  std::size_t num_bytes() const { return num_bytes_; }
  /// Returns the persistent ids in the order in which the pickle loads them.
  const std::vector<PickleValue>& persistent_ids() const { return persistent_ids_; }

 private:
  friend class PickleParser;
  std::deque<PickleNode> nodes_;  ///< whose addresses stay
  PickleValue root_;
  std::size_t num_bytes_ = 0;
  std::vector<PickleValue> persistent_ids_;
};

/// Returns the text in quotes, at most 100 bytes of it, with \x.. for all that is not printable
/// ASCII.
std::string quoted_text(std::string_view text);

}  // namespace megatron
