#include "megatron/planner/memory_table.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

constexpr double kMegabyte = 1024.0 * 1024.0;
constexpr std::size_t kNameWidth = 48, kColumnWidth = 12;

/// A part of the table: its name in the text, its key in JSON.
struct MemoryRow {
  const char* name;
  const char* key;
  double MemoryTable::*bytes;
};

constexpr std::array<MemoryRow, 10> kRows{{
    {"parameters", "parameters", &MemoryTable::parameters},
    {"main parameters", "main_parameters", &MemoryTable::main_parameters},
    {"gradients", "gradients", &MemoryTable::gradients},
    {"optimizer state", "optimizer_state", &MemoryTable::optimizer_state},
    {"activations", "activations", &MemoryTable::activations},
    {"temporary, at the peak of a step", "temporary", &MemoryTable::temporary},
    {"communication", "communication", &MemoryTable::communication},
    {"data and host objects", "host", &MemoryTable::host},
    {"allocator slack", "allocator_slack", &MemoryTable::allocator_slack},
    {"program and libraries", "libraries", &MemoryTable::libraries},
}};

/// A number of what is offloaded.
struct OffloadedRow {
  const char* name;
  const char* key;
  OffloadedMemory MemoryTable::*part;
  double OffloadedMemory::*bytes;
};

constexpr OffloadedMemory MemoryTable::*kActivations = &MemoryTable::offloaded_activations;
constexpr OffloadedMemory MemoryTable::*kState = &MemoryTable::offloaded_state;

constexpr std::array<OffloadedRow, 8> kOffloadedRows{{
    {"  activations, now", "offloaded_activations_now", kActivations, &OffloadedMemory::now},
    {"  activations, at their peak", "offloaded_activations_peak", kActivations,
     &OffloadedMemory::peak},
    {"  activations, written in a step", "offloaded_activations_written", kActivations,
     &OffloadedMemory::written},
    {"  activations, read in a step", "offloaded_activations_read", kActivations,
     &OffloadedMemory::read},
    {"  optimizer state, now", "offloaded_state_now", kState, &OffloadedMemory::now},
    {"  optimizer state, at its peak", "offloaded_state_peak", kState, &OffloadedMemory::peak},
    {"  optimizer state, written in a step", "offloaded_state_written", kState,
     &OffloadedMemory::written},
    {"  optimizer state, read in a step", "offloaded_state_read", kState, &OffloadedMemory::read},
}};

/// The units of one kind in each column.
struct KindLine {
  std::string kind;
  std::vector<std::int64_t> counts;
  std::vector<double> bytes;
};

std::vector<KindLine> kind_lines(std::span<const MemoryColumn> columns) {
  std::vector<KindLine> lines;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    for (const UnitActivations& unit : columns[column].table->units) {
      auto line = std::ranges::find(lines, unit.kind, &KindLine::kind);
      if (line == lines.end()) {
        lines.push_back({unit.kind, std::vector<std::int64_t>(columns.size()),
                         std::vector<double>(columns.size())});
        line = lines.end() - 1;
      }
      ++line->counts[column];
      line->bytes[column] += unit.bytes;
    }
  }
  return lines;
}

std::string title_line(const std::string& name) {
  std::string title = "\n    " + name + ' ';
  title.resize(std::max(title.size(), kNameWidth + 5), '.');
  return title + ':';
}

std::string value_text(double bytes, bool is_only) {
  const std::string text = format("%.2f", bytes / kMegabyte);
  const std::size_t width = is_only ? 0 : kColumnWidth;
  return ' ' + std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string row_line(const std::string& name, std::span<const MemoryColumn> columns,
                     const auto& value) {
  std::string text = title_line(name);
  for (std::size_t i = 0; i < columns.size(); ++i)
    text += value_text(value(i), columns.size() == 1);
  return text;
}

/// Returns "  4 dense layers", or "  dense layers" when the columns have different numbers.
std::string kind_name(const KindLine& line) {
  const std::int64_t count = std::ranges::max(line.counts);
  const bool are_equal = std::ranges::count(line.counts, count) == std::ssize(line.counts);
  if (count == 1) return "  " + line.kind;
  return "  " + (are_equal ? std::to_string(count) + ' ' : "") + line.kind + 's';
}

/// Returns the lines of what is offloaded; empty when nothing is.
std::string offloaded_text(std::span<const MemoryColumn> columns) {
  std::string text;
  for (OffloadedMemory MemoryTable::*part : {kActivations, kState}) {
    const auto has_any = [&](const MemoryColumn& column) { return (column.table->*part).peak > 0; };
    if (std::ranges::none_of(columns, has_any)) continue;
    for (const OffloadedRow& row : kOffloadedRows) {
      if (row.part != part) continue;
      text += row_line(row.name, columns, [&](std::size_t column) {
        return columns[column].table->*row.part.*row.bytes;
      });
    }
  }
  return text.empty() ? text : "\n    offloaded, no part of the sum:" + text;
}

}  // namespace

double MemoryTable::explained() const {
  double sum = 0;
  for (const MemoryRow& row : kRows) sum += this->*row.bytes;
  return sum;
}

std::string memory_text(std::span<const MemoryColumn> columns) {
  std::string text;
  if (columns.size() > 1)
    text = "\n    columns: " + joined_text(columns, " | ", &MemoryColumn::title);
  for (const MemoryRow& row : kRows) {
    text += row_line(row.name, columns,
                     [&](std::size_t column) { return columns[column].table->*row.bytes; });
    if (row.bytes != &MemoryTable::activations) continue;
    for (const KindLine& line : kind_lines(columns))
      text += row_line(kind_name(line), columns,
                       [&](std::size_t column) { return line.bytes[column]; });
  }
  text += row_line("unexplained", columns,
                   [&](std::size_t column) { return columns[column].table->unexplained(); });
  text += row_line("sum, the peak of the process", columns,
                   [&](std::size_t column) { return columns[column].table->peak; });
  return text + offloaded_text(columns);
}

JsonText memory_json(const MemoryTable& table) {
  JsonText json;
  for (const MemoryRow& row : kRows) json[row.key] = table.*row.bytes;
  json["workspaces"] = table.workspaces;
  json["unexplained"] = table.unexplained();
  json["peak"] = table.peak;
  for (const OffloadedRow& row : kOffloadedRows) json[row.key] = table.*row.part.*row.bytes;
  JsonText units = JsonText::array();
  for (const UnitActivations& unit : table.units)
    units.push_back({{"name", unit.name}, {"kind", unit.kind}, {"bytes", unit.bytes}});
  json["units"] = std::move(units);
  return json;
}

MemoryTable memory_table_of(const std::string& json_text) {
  return memory_table_of(parse_json(json_text, "the memory of a rank"));
}

MemoryTable memory_table_of(const Json& table_json) {
  const JsonCursor json(table_json, "a memory table");
  MemoryTable table{.workspaces = json["workspaces"].number(), .peak = json["peak"].number()};
  for (const MemoryRow& row : kRows) table.*row.bytes = json[row.key].number();
  for (const OffloadedRow& row : kOffloadedRows)
    table.*row.part.*row.bytes = json[row.key].number();
  for (const JsonCursor& unit : json["units"].elements())
    table.units.push_back({.name = unit["name"].text(),
                           .kind = unit["kind"].text(),
                           .bytes = unit["bytes"].number()});
  return table;
}

}  // namespace megatron
