#include "megatron/config/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "megatron/base/words.h"
#include "megatron/config/environment.h"
#include "megatron/config/field_index.h"
#include "megatron/config/field_values.h"
#include "megatron/config/help.h"

namespace megatron {
namespace {

class FlagReader {
 public:
  FlagReader(const FieldIndex& index, std::span<const std::string> args, std::string_view command,
             Problems& problems)
      : index_(index), args_(args), command_(command), problems_(problems) {
    for (const Field& field : index.fields().fields) {
      if (field.is_positional) positionals_.push_back(&field);
    }
  }

  std::vector<Assignment> read() {
    while (next_ < args_.size()) {
      const std::string& word = args_[next_++];
      if (word == "--") {
        while (next_ < args_.size()) words_.push_back(args_[next_++]);
      } else if (word == "--help" || word == "-h") {
        throw HelpRequested{help_text(index_.fields(), command_)};
      } else if (looks_like_flag(word) || looks_like_assignment(word)) {
        read_flag(word);
      } else {
        words_.push_back(word);
      }
    }
    assign_positionals();
    return std::move(found_);
  }

 private:
  /// Returns the field that a word names before "=".
  Spelling meaning_of(const std::string& word) const {
    return word.starts_with("--") ? index_.find(word.substr(2, word.find('=') - 2)) : Spelling{};
  }

  /// Returns whether argparse would take the word for a flag: it names a known one before "=", or
  /// it starts with '-', is not a negative number and contains no space.
  bool looks_like_flag(const std::string& word) const {
    if (word.size() < 2 || word[0] != '-') return false;
    const bool digit =
        std::isdigit(static_cast<unsigned char>(word[1])) || (word[1] == '.' && word.size() > 2);
    return meaning_of(word).field != nullptr || (!digit && word.find(' ') == std::string::npos);
  }

  /// Returns whether a word that is no value is a misspelt "--flag=value with spaces".
  static bool looks_like_assignment(const std::string& word) {
    return word.starts_with("--") && word.find('=') < word.find(' ');
  }

  void read_flag(const std::string& word) {
    const auto equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    const Spelling meaning = meaning_of(word);
    if (!meaning.field) return unknown(flag, equals != std::string::npos);
    const Field& field = *meaning.field;
    std::vector<std::string> values;
    if (equals != std::string::npos) values.push_back(word.substr(equals + 1));
    if (field.is_switch()) {
      if (values.empty()) values.push_back("true");
      if (meaning.turns_off && !invert(flag, values[0])) return;
    } else if (values.empty()) {
      values = take_values(field);
      if (values.empty() && !(field.is_list && !field.is_repeatable))
        return needs_value(flag, field);
    }
    found_.push_back({&field, std::move(values), {Origin::Kind::flag, flag}, flag});
  }

  bool invert(const std::string& flag, std::string& value) {
    try {
      value = inverted(value);
      return true;
    } catch (const FieldError& error) {
      problems_.add({flag + ": " + error.reason, "", error.fix});
      return false;
    }
  }

  std::vector<std::string> take_values(const Field& field) {
    std::vector<std::string> values;
    const bool many = field.is_list && !field.is_repeatable;
    while (next_ < args_.size() && !looks_like_flag(args_[next_]) && (many || values.empty()))
      values.push_back(args_[next_++]);
    return values;
  }

  /// A next word that begins with one '-' and is no flag was meant as the value, which needs "=".
  void needs_value(const std::string& flag, const Field& field) {
    const std::string next = next_ < args_.size() ? args_[next_] : "";
    const bool is_value = next.starts_with('-') && !next.starts_with("--") && next != "-h";
    if (is_value) ++next_;
    if (is_value && field.kind == ValueKind::text)  // so that no other flag seems to be missing
      found_.push_back({&field, {next}, {Origin::Kind::flag, flag}, flag});
    problems_.add({flag, "expects a value" + (is_value ? ", and " + next + " reads as a flag" : ""),
                   "write " + flag + (is_value ? "=" + next : " " + value_placeholder(field))});
  }

  void unknown(const std::string& flag, bool has_value) {
    const std::string spelling = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    if (spelling == "help") {
      problems_.add(
          {flag, "takes no value", "write --help alone, or search with megatron help WORD"});
    } else {
      problems_.add({flag, "unknown flag", index_.suggestion(spelling, command_)});
    }
    if (has_value) return;
    while (next_ < args_.size() && !looks_like_flag(args_[next_])) ++next_;
  }

  void assign_positionals() {
    auto next = words_.begin();
    for (const Field* field : positionals_) {
      if (next == words_.end()) break;
      const auto end = field->is_list ? words_.end() : next + 1;
      found_.push_back({field, {next, end}, {Origin::Kind::flag, field->name}});
      next = end;
    }
    for (; next != words_.end(); ++next) {
      problems_.add({"'" + *next + "'", "belongs to no flag",
                     "see megatron " + std::string(command_) + " --help"});
    }
  }

  const FieldIndex& index_;
  std::span<const std::string> args_;
  std::string_view command_;
  Problems& problems_;
  std::vector<const Field*> positionals_;
  std::vector<std::string> words_;
  std::vector<Assignment> found_;
  std::size_t next_ = 0;
};

/// Returns whether the values leave a switch as it is without them: files write what is off, too.
/// Field::get() cannot tell it of a flag that is translated later.
bool is_default_of_switch(const Field& field, std::span<const std::string> values) {
  if (!field.is_switch() || field.default_values.empty()) return false;
  try {
    return boolean_value(single_value(values)) == (field.default_values[0] == "true");
  } catch (const FieldError&) {
    return false;  // apply_assignments() has reported it
  }
}

/// Returns the values of a field after an assignment: a repeatable field appends to the values from
/// the same source.
std::vector<std::string> grown(const Assignment& assignment, const void* object,
                               const ParseResult& parsed) {
  const Origin before = parsed.origin(assignment.field->name);
  if (!assignment.field->is_repeatable || before.kind != assignment.origin.kind)
    return assignment.values;
  std::vector<std::string> values = assignment.field->get(object);
  values.insert(values.end(), assignment.values.begin(), assignment.values.end());
  return values;
}

}  // namespace

std::vector<Assignment> read_flags(const FieldIndex& index, std::span<const std::string> args,
                                   std::string_view command, Problems& problems) {
  return FlagReader(index, args, command, problems).read();
}

namespace {

/// Checks flags that are given more than once with different values. The last value counts, as in
/// argparse, but two spellings of one setting contradict each other.
class Repetitions {
 public:
  Repetitions(ParseResult& parsed, Problems& problems) : parsed_(parsed), problems_(problems) {}

  void see(const Assignment& assignment) {
    if (assignment.field->is_repeatable || assignment.origin.kind != Origin::Kind::flag) return;
    const auto [found, is_first] = seen_.emplace(assignment.field, &assignment);
    if (is_first) return;
    const Assignment& before = *found->second;
    const std::string& flag = assignment.origin.where;
    if (before.values != assignment.values && before.origin.where == flag)
      parsed_.notes["is given more than once: the last value counts"].push_back(
          flag + " " + join_values(assignment.values));
    if (before.values != assignment.values && before.origin.where != flag)
      problems_.add({flag, "contradicts " + before.origin.where + ": both are the same setting",
                     "give one of the two"});
    found->second = &assignment;
  }

 private:
  ParseResult& parsed_;
  Problems& problems_;
  std::map<const Field*, const Assignment*> seen_;
};

}  // namespace

void apply_assignments(std::span<const Assignment> assignments, void* object, ParseResult& parsed,
                       Problems& problems) {
  Repetitions repetitions(parsed, problems);
  for (const Assignment& assignment : assignments) {
    const Field& field = *assignment.field;
    repetitions.see(assignment);
    try {
      assign(field, object, grown(assignment, object, parsed));
    } catch (const FieldError& error) {
      UserError::Parts mistake{assignment.origin.where + ": " + error.reason, "", error.fix};
      if (field.decides_flags) throw UserError(mistake);
      problems.add(std::move(mistake));
      parsed.failed.insert(field.name);
    }
    if (std::ranges::count(field.older_names, assignment.spelling) > 0)
      parsed.notes["is an older name of " + field.flag()].push_back(assignment.origin.where);
    if (!field.note.empty() && !is_default_of_switch(field, assignment.values))
      add_notes({{field.note, {assignment.origin.where}}}, parsed.notes);
    parsed.origins[field.name] = assignment.origin;
  }
}

std::string notes_text(const Notes& notes) {
  constexpr std::string_view kWithoutEffect = "without effect";
  std::string without_effect, others;
  for (const auto& [remark, flags] : notes) {
    const bool has_none = remark.starts_with(kWithoutEffect);
    const std::size_t begin = remark.find_first_not_of(":, ", has_none ? kWithoutEffect.size() : 0);
    (has_none ? without_effect : others) +=
        (has_none ? "  " : "note: ") + joined_text(flags) + ": " + remark.substr(begin) + "\n";
  }
  return (without_effect.empty() ? "" : "accepted without effect:\n" + without_effect) + others;
}

void note_unread_fields(const FieldSet& fields, const void* object, ParseResult& parsed) {
  for (const Field& field : fields.fields) {
    if (!parsed.is_set(field.name) || field.read_with.empty()) continue;
    const Field& other = *fields.find_name(field.read_with);
    const std::string value = join_values(other.get(object));
    if (!value.empty() && !field.is_read_with(value))
      parsed.notes["without effect with " + other.flag() + " " + value].push_back(
          parsed.origin(field.name).where);
  }
}

void require_fields(const FieldSet& fields, const ParseResult& parsed, Problems& problems) {
  for (const Field& field : fields.fields) {
    if (!field.is_required || parsed.is_set(field.name)) continue;
    const std::string example = field.is_positional ? value_placeholder(field)
                                                    : field.flag() + " " + value_placeholder(field);
    problems.add({field.is_positional ? field.name : field.flag(), "is required",
                  "add " + example + " (" + field.help + ")"});
  }
}

ParseResult parse_command_line(const FieldSet& fields, std::span<const std::string> args,
                               void* object, std::string_view command) {
  Problems problems;
  ParseResult parsed;
  const FieldIndex index(fields);
  const auto flags = read_flags(index, args, command, problems);
  Notes others;  // other variables may be settings of other commands
  Problems misspelt;
  std::vector<Assignment> all = read_environment(index, ::environ, others, misspelt);
  for (const UserError::Parts& one : misspelt.list())
    parsed.notes["names no setting of " + std::string(command) + " and is ignored; " + one.fix]
        .push_back(one.what);
  all.insert(all.end(), flags.begin(), flags.end());
  apply_assignments(all, object, parsed, problems);
  require_fields(fields, parsed, problems);
  problems.throw_if_any();
  note_unread_fields(fields, object, parsed);
  return parsed;
}

}  // namespace megatron
