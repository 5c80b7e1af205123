// A table of settings. Each field is declared once; flags, YAML and TOML keys, environment
// variables, --help, documentation and dumps are derived from it.
//
//   struct Options { std::string input; std::int64_t workers = 1; bool append_eod = false; };
//   const FieldTable<Options>& options_table() {
//     return field_table<Options>([](auto& t) {
//       t.group("Input");
//       t.field("input", &Options::input, "jsonl or text file").required().value_name("FILE");
//       t.field("workers", &Options::workers, "number of threads").at_least(1);
//       t.field("append_eod", &Options::append_eod, "append the end-of-document token");
//     });
//   }
//   int run_example(std::span<const std::string> args) {
//     Options options;
//     // Throws one UserError with all mistakes, or HelpRequested.
//     parse_command_line(options_table(), args, options, "preprocess-data");
#pragma once

#include "megatron/base/indirect.h"
#include "megatron/config/command_line.h"
#include "megatron/config/field.h"
#include "megatron/config/field_values.h"

namespace megatron {

/// Adds the flags --no-x and --disable-x to a boolean field whose default is true.
void declare_off_flags(Field& field);

/// Sets the properties of the field that was just declared.
class FieldBuilder {
 public:
  explicit FieldBuilder(Field& field) : field_(field) {}
  FieldBuilder& required() { return field_.is_required = true, *this; }
  FieldBuilder& at_least(double bound) { return field_.minimum = bound, *this; }
  FieldBuilder& at_most(double bound) { return field_.maximum = bound, *this; }
  FieldBuilder& between(double least, double most) { return at_least(least).at_most(most); }
  FieldBuilder& above(double bound) {
    return field_.minimum = bound, field_.minimum_is_excluded = true, *this;
  }
  FieldBuilder& below(double bound) {
    return field_.maximum = bound, field_.maximum_is_excluded = true, *this;
  }
  FieldBuilder& choices(std::vector<std::string> values) {
    return field_.choices = std::move(values), *this;
  }
  /// Sets the fix for a value that is none of the choices.
  FieldBuilder& otherwise(std::string fix) { return field_.choices_fix = std::move(fix), *this; }
  /// Adds a spelling of the flag, without "--".
  FieldBuilder& alias(std::string flag) { return field_.aliases.push_back(std::move(flag)), *this; }
  /// Adds a spelling that later releases of Megatron-LM refuse. A note says what it stands for.
  FieldBuilder& older_name(const std::string& flag) {
    return field_.older_names.push_back("--" + flag), alias(flag);
  }
  /// Sets the flag that turns a boolean off, instead of --no-x and --disable-x. A second call adds
  /// a second spelling.
  FieldBuilder& off_flag(std::string flag);
  FieldBuilder& value_name(std::string name) { return field_.value_name = std::move(name), *this; }
  FieldBuilder& hidden() { return field_.is_hidden = true, *this; }
  /// Takes the values from the words that belong to no flag. A list takes all remaining words.
  FieldBuilder& positional() { return field_.is_positional = true, *this; }
  /// Reports a wrong value alone, because the other flags depend on it.
  FieldBuilder& decides_flags() { return field_.decides_flags = true, *this; }
  /// Makes each occurrence of the flag append one value to the list: --prompt a --prompt b.
  FieldBuilder& repeatable() { return field_.is_repeatable = true, *this; }
  /// Accepts "none" as a value, which the field reads itself.
  FieldBuilder& optional() { return field_.is_optional = true, *this; }
  /// Reads "none" as the value `text`, and writes that value as "none": 0 of a size.
  FieldBuilder& none_is(std::string text);
  /// Accepts "none" for an empty text or list.
  FieldBuilder& none_is_empty();
  /// Sets a note that is printed once on stderr if the field is given.
  FieldBuilder& note(std::string text) { return field_.note = std::move(text), *this; }
  /// Names the member that a custom field stores its value in.
  template <class T, class V>
  FieldBuilder& stores(V T::*member) {
    return field_.member = member_key(member), *this;
  }
  /// Adds a note that is printed if the field is given to a run whose settings satisfy a condition.
  FieldBuilder& note(ConditionalNote note) {
    return field_.conditional_notes.push_back(note), *this;
  }

  /// Notes that the field has no effect if `other` is given a value that is none of these.
  FieldBuilder& only_with(std::string_view other, std::vector<std::string_view> values) {
    field_.read_with = other;
    return field_.read_with_values = std::move(values), *this;
  }

  /// Says which part the field has in the architecture.
  FieldBuilder& architecture(ArchitectureRole role) { return field_.architecture = role, *this; }
  /// Marks a member of the architecture that has its default where a checkpoint lacks it.
  FieldBuilder& older_checkpoints_lack_it() {
    return field_.older_checkpoints_lack_it = true, *this;
  }

  /// Makes `megatron check` use the default: the value changes numbers, files or places, but no
  /// layout. The report contains `remark`, unless it is empty, if the value was another one.
  FieldBuilder& left_out_of_check(std::string_view remark = "") {
    return field_.left_out_of_check = remark, *this;
  }
  /// Undoes left_out_of_check() of FieldTable::following().
  FieldBuilder& kept_in_check() { return field_.left_out_of_check.reset(), *this; }

  /// Says what follows when a run resumes with another value than the checkpoint's.
  FieldBuilder& on_resume(std::string_view consequence) {
    return field_.on_resume = {.consequence = consequence}, *this;
  }
  FieldBuilder& applies_on_resume() { return on_resume("applies from now on"); }
  /// Says why a run with another value than the checkpoint's does not continue the saved one.
  FieldBuilder& breaks_resume(std::string_view why) {
    return field_.on_resume = {ResumeMeaning::Kind::breaking, why}, *this;
  }
  /// Like breaks_resume(), but a new phase of the data, which begins at its first sample, may have
  /// another value.
  FieldBuilder& breaks_phase(std::string_view why) {
    return field_.on_resume = {ResumeMeaning::Kind::breaking, why, true}, *this;
  }
  /// Marks a setting of a schedule, whose state the checkpoint stores.
  FieldBuilder& defines_schedule() {
    return field_.on_resume = {.kind = ResumeMeaning::Kind::schedule}, *this;
  }
  /// Hides a difference from the checkpoint: it has no consequence.
  FieldBuilder& differs_silently() {
    return field_.on_resume = {.kind = ResumeMeaning::Kind::none}, *this;
  }

 private:
  Field& field_;
};

/// The settings of a plain struct T, in the order in which the help shows them.
template <class T>
class FieldTable {
 public:
  /// Sets the first paragraph of the command's help.
  FieldTable& about(std::string text) { return set_.about = std::move(text), *this; }
  /// Sets the group title of the following fields.
  FieldTable& group(std::string title) { return next_.group = std::move(title), *this; }

  /// Sets properties that the following fields have unless they set them otherwise.
  FieldBuilder following() { return FieldBuilder(next_); }

  /// Declares a member as a setting. The default is its value in a default-constructed T.
  template <class V>
  FieldBuilder field(std::string name, V T::*member, std::string help) {
    Field& added = add(std::move(name), std::move(help));
    describe_type<V>(added);
    added.member = member_key(member);
    added.set = [member](void* object, std::span<const std::string> values) {
      read_values(static_cast<T*>(object)->*member, values);
    };
    added.get = [member](const void* object) {
      return write_values(static_cast<const T*>(object)->*member);
    };
    finish(added);
    return FieldBuilder(added);
  }

  /// Declares a setting with custom functions. `read` sets it from text; `write` returns the values
  /// as text, empty if unset.
  FieldBuilder custom(std::string name, ValueKind kind,
                      std::function<void(T&, std::span<const std::string>)> read,
                      std::function<std::vector<std::string>(const T&)> write, std::string help) {
    Field& added = add(std::move(name), std::move(help));
    added.kind = kind;
    added.set = [read = std::move(read)](void* object, std::span<const std::string> values) {
      read(*static_cast<T*>(object), values);
    };
    added.get = [write = std::move(write)](const void* object) {
      return write(*static_cast<const T*>(object));
    };
    finish(added);
    return FieldBuilder(added);
  }

  /// Declares every field of another table as a field of this one that sets `member`.
  template <class Inner>
  FieldTable& include(Inner T::*member, const FieldTable<Inner>& inner) {
    return include_set([member](T& object) { return &(object.*member); }, inner.set());
  }
  template <class Inner>
  FieldTable& include(Indirect<Inner> T::*member, const FieldTable<Inner>& inner) {
    return include_set([member](T& object) { return &*(object.*member); }, inner.set());
  }

  /// Declares a field that sets no member of T, such as a known flag without effect.
  FieldTable& add_field(Field field) { return set_.fields.push_back(std::move(field)), *this; }

  const FieldSet& set() const { return set_; }

 private:
  /// Declares the fields of a part of T, which `part_of` finds in it.
  FieldTable& include_set(const std::function<void*(T&)>& part_of, const FieldSet& inner) {
    for (const Field& field : inner.fields) {
      Field& added = set_.fields.emplace_back(field);
      if (added.group.empty()) added.group = next_.group;
      added.set = [part_of, set = field.set](void* object, std::span<const std::string> values) {
        set(part_of(*static_cast<T*>(object)), values);
      };
      added.get = [part_of, get = field.get](const void* object) {
        // `get` takes the part as const, so nothing is written.
        return get(part_of(*static_cast<T*>(const_cast<void*>(object))));
      };
    }
    return *this;
  }

  Field& add(std::string name, std::string help) {
    Field& field = set_.fields.emplace_back(next_);
    field.name = std::move(name);
    field.help = std::move(help);
    return field;
  }
  void finish(Field& field) {
    const T defaults{};
    field.default_values = field.get(&defaults);
    declare_off_flags(field);
  }

  FieldSet set_;
  Field next_;  ///< what the following fields have in common
};

/// Returns the table that declare(t) fills, which happens once. `declare` is a lambda without
/// captures, so each one has a table of its own.
template <class T, class Declare>
const FieldTable<T>& field_table(const Declare& declare) {
  static_assert(std::is_empty_v<Declare>, "the table would keep the captures of the first call");
  static const FieldTable<T> table = [&] {
    FieldTable<T> t;
    declare(t);
    return t;
  }();
  return table;
}

/// Fills `object` from the words after the command's name. Throws one UserError with all mistakes,
/// or HelpRequested on --help.
template <class T>
ParseResult parse_command_line(const FieldTable<T>& table, std::span<const std::string> args,
                               T& object, std::string_view command) {
  return parse_command_line(table.set(), args, &object, command);
}

}  // namespace megatron
