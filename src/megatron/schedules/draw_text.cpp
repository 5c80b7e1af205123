#include <algorithm>
#include <array>
#include <cmath>

#include "megatron/base/format.h"
#include "megatron/schedules/draw.h"
#include "megatron/schedules/drawn_steps.h"

namespace megatron {
namespace {

constexpr double kMaxBlocks = 6;
constexpr const char* kIdle = "·";

/// Background colours of the xterm 256-colour palette: one row per kind, from dark to light over
/// the chunks of a rank.
constexpr std::array<std::array<int, 4>, 4> kShades{
    {{25, 32, 75, 153}, {124, 167, 210, 224}, {130, 172, 215, 223}, {28, 71, 114, 157}}};

struct Glyph {
  std::string text = kIdle;
  int background = -1;
};

int shade_of(const Schedule& schedule, const ScheduleStep& step) {
  const auto& shades = kShades[static_cast<std::size_t>(step.kind)];
  const std::int64_t last = schedule.num_chunks - 1;
  return shades[static_cast<std::size_t>(
      last == 0 ? 0 : (std::int64_t{step.chunk} * 3 + last / 2) / last)];
}

std::string chunk_letter(const Schedule& schedule, std::int32_t chunk) {
  return schedule.num_chunks > 1 ? std::string(1, static_cast<char>('a' + chunk % 26)) : "";
}

/// Returns the label of a step. Without colour, letters show kind and chunk.
std::string label_in(const Schedule& schedule, const ScheduleStep& step, bool colour) {
  const std::string number = std::to_string(step.microbatch);
  return colour ? number : name_of(step.kind) + number + chunk_letter(schedule, step.chunk);
}

/// Maps time to columns.
struct Scale {
  double columns_per_s = 1;
  std::size_t columns = 1, block = 1;  ///< Number of columns in all, and in one block of rows.
  std::size_t at(double time_s) const {
    return std::min(columns, static_cast<std::size_t>(std::llround(time_s * columns_per_s)));
  }
};

class TextDrawing {
 public:
  TextDrawing(const Schedule& schedule, const Simulation& run, const DrawOptions& options)
      : schedule_(schedule),
        run_(run),
        options_(options),
        margin_(format("rank %zu ", schedule.ranks.size() - 1).size()),
        scale_(choose_scale()) {
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) rows_.push_back(row_of(rank));
  }

  std::string text() const {
    std::string text = title_of(schedule_) + "\n" + legend() + "\n";
    for (std::size_t from = 0; from < scale_.columns; from += scale_.block) {
      const std::size_t to = std::min(from + scale_.block, scale_.columns);
      text += "\n";
      for (std::size_t rank = 0; rank < rows_.size(); ++rank)
        text += left_of(rank) + row_text(rows_[rank], from, to) + "\n";
      text += axis(from, to) + "\n";
    }
    return text;
  }

 private:
  /// Returns a scale wide enough for every label, unless that takes more than a few blocks.
  Scale choose_scale() const {
    double wanted = 0, shortest = run_.makespan_s;
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (const DrawnStep& cell : drawn_steps(schedule_, run_, rank)) {
        const double length = (cell.end_s - cell.begin_s) / (cell.is_joined ? 2 : 1);
        if (length <= 0) continue;
        shortest = std::min(shortest, length);
        wanted = std::max(wanted, static_cast<double>(
                                      label_in(schedule_, cell.step, options_.colour).size() + 1) /
                                      length);
      }
    }
    const auto width = static_cast<std::size_t>(std::max(options_.width, 20));
    Scale scale{.block = width > margin_ + 12 ? width - margin_ - 2 : 10};
    if (wanted == 0) return scale;
    scale.columns_per_s =
        std::min(wanted, kMaxBlocks * static_cast<double>(scale.block) / run_.makespan_s);
    const double cell = std::floor(scale.columns_per_s * shortest + 1e-9);
    if (cell >= 1) {
      scale.columns_per_s = cell / shortest;
      scale.block -= scale.block % static_cast<std::size_t>(cell);
    }
    scale.columns = std::max<std::size_t>(
        1, static_cast<std::size_t>(std::llround(run_.makespan_s * scale.columns_per_s)));
    return scale;
  }

  std::vector<Glyph> row_of(std::size_t rank) const {
    std::vector<Glyph> row(scale_.columns);
    bool is_second = false;
    for (const DrawnStep& cell : drawn_steps(schedule_, run_, rank)) {
      std::size_t from = scale_.at(cell.begin_s), to = scale_.at(cell.end_s);
      if (cell.is_joined) (is_second ? from : to) = (from + to) / 2;
      is_second = cell.step.joins_next;
      fill(row, from, to, cell.step);
    }
    return row;
  }

  void fill(std::vector<Glyph>& row, std::size_t from, std::size_t to,
            const ScheduleStep& step) const {
    std::string label = label_in(schedule_, step, options_.colour);
    const std::size_t room = to - from;
    if (label.size() > room) label = options_.colour ? "" : name_of(step.kind);
    if (step.joins_next && label.size() < room) label.resize(room - 1, ' '), label += '+';
    label.resize(room, ' ');
    for (std::size_t i = 0; i < room; ++i)
      row[from + i] = {std::string(1, label[i]), shade_of(schedule_, step)};
  }

  std::string painted(const std::string& text, int background) const {
    if (!options_.colour) return text;
    if (background < 0) return "\033[38;5;245m" + text + "\033[0m";
    return format("\033[38;5;%d;48;5;%dm", is_dark(background) ? 231 : 16, background) + text +
           "\033[0m";
  }
  static bool is_dark(int background) {
    return std::any_of(kShades.begin(), kShades.end(),
                       [&](const auto& shades) { return shades[0] == background; });
  }

  std::string row_text(const std::vector<Glyph>& row, std::size_t from, std::size_t to) const {
    std::string text;
    for (std::size_t i = from; i < to;) {
      std::string run;
      const int background = row[i].background;
      for (; i < to && row[i].background == background; ++i) run += row[i].text;
      text += painted(run, background);
    }
    return text;
  }

  std::string left_of(std::size_t rank) const {
    return format("%-*s", static_cast<int>(margin_), format("rank %zu", rank).c_str()) + "│";
  }

  /// Returns the line with the times of the columns.
  std::string axis(std::size_t from, std::size_t to) const {
    std::string text(margin_ + 1, ' ');
    const double step = tick_distance(12 / scale_.columns_per_s);
    for (auto i = static_cast<std::int64_t>(
             std::ceil(static_cast<double>(from) / scale_.columns_per_s / step - 1e-9));
         ; ++i) {
      const std::size_t column = static_cast<std::size_t>(
          std::llround(static_cast<double>(i) * step * scale_.columns_per_s));
      if (column >= to) break;
      text.resize(std::max(text.size(), margin_ + 1 + column - from), ' ');
      text += format("%g", static_cast<double>(i) * step);
    }
    return text;
  }

  std::string legend() const {
    std::string text;
    for (const StepKind kind : kinds_of(schedule_)) {
      for (std::int32_t chunk = 0; options_.colour && chunk < schedule_.num_chunks; ++chunk)
        text += painted(schedule_.num_chunks > 1 ? format(" %d ", chunk) : "   ",
                        shade_of(schedule_, {kind, 0, chunk}));
      text +=
          (options_.colour ? " " : std::string(name_of(kind)) + " ") + description_of(kind) + "   ";
    }
    text += std::string(painted(kIdle, -1)) + " idle";
    if (schedule_.num_chunks > 1)
      text +=
          options_.colour
              ? "   shades: chunks"
              : "   " + std::string("a") + "…" +
                    chunk_letter(schedule_, static_cast<std::int32_t>(schedule_.num_chunks - 1)) +
                    " chunks";
    return text;
  }

  const Schedule& schedule_;
  const Simulation& run_;
  DrawOptions options_;
  std::size_t margin_;
  Scale scale_;
  std::vector<std::vector<Glyph>> rows_;
};

}  // namespace

std::string draw_table(const Simulation& run) {
  std::string text = "rank        busy    bubble  peak activations\n";
  for (std::size_t rank = 0; rank < run.busy_s.size(); ++rank)
    text += format("%4zu  %10.5g  %6.1f %%  %16.4g\n", rank, run.busy_s[rank],
                   100 * run.bubble(static_cast<std::int64_t>(rank)), run.peak_activation[rank]);
  return text + format("makespan %.6g, bubble of all ranks together %.1f %%\n", run.makespan_s,
                       100 * run.total_bubble());
}

std::string draw_text(const Schedule& schedule, const Simulation& run, const DrawOptions& options) {
  return TextDrawing(schedule, run, options).text() + "\n" + draw_table(run);
}

}  // namespace megatron
