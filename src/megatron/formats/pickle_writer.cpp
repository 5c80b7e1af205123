#include "megatron/formats/pickle_writer.h"

#include <bit>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/formats/zip_directory.h"

namespace megatron {
namespace {

using Globals = std::map<std::string, std::uint32_t>;  ///< their indices in the memo

std::string integer_opcodes(std::int64_t value) {
  if (std::in_range<std::uint8_t>(value))
    return number_bytes('K', static_cast<std::uint8_t>(value));
  if (std::in_range<std::int32_t>(value))
    return number_bytes('J', static_cast<std::int32_t>(value));
  return number_bytes('\x8a', '\x08', value);  // LONG1, and its number of bytes
}

void put(const Json& value, Globals& globals, std::string& bytes) {
  if (value.is_null()) {
    bytes += 'N';
  } else if (value.is_boolean()) {
    bytes += value.get<bool>() ? '\x88' : '\x89';
  } else if (value.is_number_float()) {
    const auto bits = std::bit_cast<std::uint64_t>(value.get<double>());
    bytes += number_bytes('G', __builtin_bswap64(bits));
  } else if (value.is_number()) {
    bytes += integer_opcodes(value.get<std::int64_t>());
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    MEGATRON_CHECK(std::in_range<std::uint32_t>(text.size()), "a pickled text has over 4 GiB");
    bytes += number_bytes('X', static_cast<std::uint32_t>(text.size())) + text;
  } else if (value.is_binary()) {
    const std::string opcodes(value.get_binary().begin(), value.get_binary().end());
    const auto known = globals.find(opcodes);
    bytes += known == globals.end() ? opcodes : number_bytes('j', known->second);
    if (opcodes.starts_with('c') && known == globals.end()) {
      const auto index = static_cast<std::uint32_t>(globals.size());
      bytes += number_bytes('r', index);
      globals.emplace(opcodes, index);
    }
  } else if (value.is_object()) {
    bytes += "}(";
    for (const auto& [key, item] : value.items()) {
      put(key, globals, bytes);
      put(item, globals, bytes);
    }
    bytes += 'u';
  } else {
    const bool is_list = value.empty() || !value.front().is_binary();
    bytes += is_list ? "](" : "";
    for (const Json& item : value) put(item, globals, bytes);
    bytes += is_list ? "e" : "";
  }
}

/// Returns opcodes as a value. An array that begins with them is no list: the opcodes of its items
/// follow each other.
Json opcodes(std::string_view bytes) {
  return Json::binary(std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

Json between(std::string_view begin, Json items, std::string_view end) {
  items.insert(items.begin(), opcodes(begin));
  items.push_back(opcodes(end));
  return items;
}

}  // namespace

std::string pickle_of(const Json& value) {
  std::string bytes = "\x80\x02";
  Globals globals;
  put(value, globals, bytes);
  return bytes + '.';
}

Json pickle_global(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  MEGATRON_CHECK(dot != name.npos, name, " has no module");
  return Json::array({opcodes("c" + std::string(name.substr(0, dot)) + "\n" +
                              std::string(name.substr(dot + 1)) + "\n")});
}

Json pickle_tuple(Json items) { return between("(", std::move(items), "t"); }

Json pickle_dict(Json items) { return between("}(", std::move(items), "u"); }

Json pickle_call(std::string_view function, Json args) {
  return between("", Json::array({pickle_global(function), pickle_tuple(std::move(args))}), "R");
}

Json pickle_object(std::string_view name, Json state) {
  return between("", Json::array({pickle_global(name), opcodes(")\x81"), std::move(state)}), "b");
}

Json pickle_persistent_id(Json id) { return between("", Json::array({std::move(id)}), "Q"); }

}  // namespace megatron
