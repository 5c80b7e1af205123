// One table of settings: each field is declared once, and flags, YAML/TOML keys, environment, --help, docs and dumps derive from it.
//
//   struct Options { std::string input; std::int64_t workers = 1; };
//   FieldTable<Options> table;
//   table.group("Input").field("input", &Options::input, "jsonl or text file").required();
//   table.field("workers", &Options::workers, "threads that tokenize").at_least(1);
//   Options options; Parsed parsed = parse_command_line(table, args, options, "preprocess-data");
#pragma once

#include <any>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace megatron {

/// Spelled-out names of an enum's values, declared once per enum by specialisation.
template <class E>
struct EnumNames;  // static constexpr std::array<std::pair<std::string_view, E>, N> value

/// Type-erased declaration of one setting of an object.
struct Field {
  std::string name;                  ///< snake_case: YAML key; the flag is --kebab-case, the environment MEGATRON_UPPER_CASE
  std::string group;
  std::string help;
  std::string value_name;            ///< "N", "FILE", "" for a switch
  std::string default_text;
  std::vector<std::string> choices;
  std::vector<std::string> aliases;  ///< further flag spellings without "--"
  std::string off_flag;              ///< for a bool that is on by default: the switch that turns it off, without "--"
  bool is_switch = false, is_list = false, is_required = false, is_hidden = false;
  /// Sets the member of `object` from text values; throws std::string (the reason) when they do not fit.
  std::function<void(void* object, std::span<const std::string> values)> set;
  std::function<std::string(const void* object)> get;
};

}  // namespace megatron
