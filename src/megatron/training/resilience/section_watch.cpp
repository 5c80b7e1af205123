#include "megatron/training/resilience/section_watch.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/config/fault_tolerance_config.h"

namespace megatron {
namespace {

/// Beside what nvidia-resiliency-ext reads.
constexpr const char *kLoad = "load", *kWorldSize = "world_size",
                     *kMicrobatches = "num_microbatches";
constexpr const char *kCurrent = "current_timeouts", *kSection = "section",
                     *kOutside = "out_of_section", *kCalculated = "calculated_sections",
                     *kOutsideIsCalculated = "is_out_of_section_calculated";

/// A pause of the machine is no reason to end a run whose steps take milliseconds.
constexpr double kLeastCalculated = 5;
/// Thirty years; larger numbers could not be counted in nanoseconds.
constexpr double kLongest = 1e9;

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw UserError({source, what, "remove the file; the timeouts are then calculated again"});
}

std::optional<double> limit_in(const Json& value, const std::string& source) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() <= 0)
    refuse(source, "has the timeout " + value.dump() + ", which is not a number above 0");
  return std::min(value.get<double>(), kLongest);
}

/// Returns the member if it exists and has the wanted type.
const Json* member(const Json& object, const char* key, bool (Json::*is_type)() const,
                   const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end()) return nullptr;
  if (!((*found).*is_type)())
    refuse(source, std::string("has a member ") + key + " of another type");
  return &*found;
}

/// Fewer steps say too little about the longest.
constexpr std::int64_t kMinStepsToCalculate = 16;

std::string describe(std::size_t section) {
  if (section == kOutOfSection) return "what lies between the sections";
  return std::string("the section '") + kRunSectionNames[section] + "'";
}

/// Returns the file of calculated limits in the folder of --save.
fs::path section_limits_path(const fs::path& save) { return save / "ft_state.json"; }

/// Replaces the limits that the file holds. Does nothing if there is no such file. Throws a
/// UserError if it is not such a file.
void read_calculated_limits(const fs::path& path, SectionLimits& limits) {
  if (!fs::exists(path)) return;
  const std::string source = path.string();
  if (!fs::is_regular_file(path)) refuse(source, "is not a file");
  const Json state = read_json(path);
  if (!state.is_object()) refuse(source, "is not a JSON object");
  const Json* current = member(state, kCurrent, &Json::is_object, source);
  const Json* sections =
      current != nullptr ? member(*current, kSection, &Json::is_object, source) : nullptr;
  if (sections == nullptr) return;  // nothing was calculated yet
  if (const Json* load = member(state, kLoad, &Json::is_object, source))
    limits.load = {JsonCursor(*load, source)[kWorldSize].integer(),
                   JsonCursor(*load, source)[kMicrobatches].integer()};
  const Json* seconds = member(*sections, kSection, &Json::is_object, source);
  if (const Json* names = member(*sections, kCalculated, &Json::is_array, source)) {
    for (std::size_t i = 0; i < kRunSectionNames.size(); ++i) {
      const bool is_named = std::ranges::find(*names, Json(kRunSectionNames[i])) != names->end();
      if (!is_named || seconds == nullptr || !seconds->contains(kRunSectionNames[i])) continue;
      limits.seconds[i] = limit_in(seconds->at(kRunSectionNames[i]), source);
      limits.is_calculated[i] = limits.seconds[i].has_value();
    }
  }
  const Json* outside = member(*sections, kOutsideIsCalculated, &Json::is_boolean, source);
  if (outside == nullptr || !outside->get<bool>() || !sections->contains(kOutside)) return;
  limits.seconds[kOutOfSection] = limit_in(sections->at(kOutside), source);
  limits.is_calculated[kOutOfSection] = limits.seconds[kOutOfSection].has_value();
}

void write_calculated_limits(const fs::path& path, const SectionLimits& limits) {
  JsonText seconds = JsonText::object();
  std::vector<std::string> calculated;
  for (std::size_t i = 0; i < kRunSectionNames.size(); ++i) {
    seconds[kRunSectionNames[i]] = limits.seconds[i];
    if (limits.is_calculated[i]) calculated.emplace_back(kRunSectionNames[i]);
  }
  std::ranges::sort(calculated);
  const JsonText sections = {{kSection, seconds},
                             {kOutside, limits.seconds[kOutOfSection]},
                             {kCalculated, calculated},
                             {kOutsideIsCalculated, limits.is_calculated[kOutOfSection]}};
  const JsonText state = {
      {kCurrent, {{kSection, sections}}},
      {kLoad,
       {{kWorldSize, limits.load.world_size}, {kMicrobatches, limits.load.num_microbatches}}}};
  write_file_atomically(path, state.dump() + "\n");
}

}  // namespace

SectionLimits SectionLimits::from(const FaultToleranceConfig& config) {
  SectionLimits limits;
  const SectionTimeouts given = parse_section_timeouts(config.ft_rank_section_timeouts);
  for (std::size_t i = 0; i < given.size(); ++i) limits.seconds[i] = given[i];
  limits.seconds[kOutOfSection] = config.ft_rank_out_of_section_timeout;
  for (std::optional<double>& limit : limits.seconds)
    if (limit) limit = std::min(*limit, kLongest);
  return limits;
}

void SectionLimits::update(const PerSection<std::optional<double>>& longest_s, double factor) {
  for (std::size_t i = 0; i < longest_s.size(); ++i) {
    if (!longest_s[i]) continue;
    const double calculated = std::clamp(factor * *longest_s[i], kLeastCalculated, kLongest);
    seconds[i] = is_calculated[i] ? (*seconds[i] + calculated) / 2 : calculated;
    is_calculated[i] = true;
  }
}

bool SectionLimits::has_any() const {
  return std::ranges::any_of(seconds, [](const auto& limit) { return limit.has_value(); });
}

std::string SectionLimits::text() const {
  std::string text;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    text += text.empty() ? "" : ", ";
    text += i == kOutOfSection ? "out of section" : kRunSectionNames[i];
    text += seconds[i] ? format(*seconds[i] < 100 ? " %.3g s" : " %.0f s", *seconds[i]) : " none";
    if (is_calculated[i]) text += " (calculated)";
  }
  return text;
}

SectionWatch::SectionWatch(SectionWatchOptions options)
    : is_enabled_(options.config.enable_ft_package), options_(std::move(options)) {
  if (!is_enabled_) return;
  limits_ = SectionLimits::from(options_.config);
  try {
    if (options_.config.calc_ft_timeouts)
      read_calculated_limits(section_limits_path(options_.save), limits_);
  } catch (const UserError& error) {
    limits_ = SectionLimits::from(options_.config);
    file_problem_ = error.what();
  }
  open_.push_back({.section = kOutOfSection, .is_measured = false});
}

SectionWatch::~SectionWatch() {
  if (is_enabled_ && options_.set_deadline) options_.set_deadline({});
}

SectionWatch::Scope::Scope(SectionWatch& watch, RunSection section, bool is_counted)
    : watch_(watch), num_exceptions_(std::uncaught_exceptions()) {
  watch_.begin(section, is_counted);
}

SectionWatch::Scope::~Scope() { watch_.end(std::uncaught_exceptions() == num_exceptions_); }

bool SectionWatch::is_warming_up() const {
  return (is_evaluating_ ? num_evaluation_steps_ : num_steps_) <
         options_.config.ft_num_warmup_iters;
}

void SectionWatch::begin_setup() {
  begin(RunSection::setup, /*is_counted=*/true);
  is_in_setup_ = is_enabled_;
}

void SectionWatch::begin(RunSection section, bool is_counted) {
  if (!is_enabled_) return;
  const bool is_step = section == RunSection::step;
  if (is_step && std::exchange(is_in_setup_, false)) end(/*is_complete=*/true);
  if (open_.back().section == kOutOfSection)
    close(/*is_complete=*/true);  // what lay before this section
  else
    open_.back().is_measured = false;  // it is interrupted
  open({.section = static_cast<std::size_t>(section),
        .is_measured = is_counted && (!is_step || !is_warming_up()),
        .is_counted = is_counted});
}

void SectionWatch::end(bool is_complete) {
  if (!is_enabled_) return;
  const Open last = open_.back();
  close(is_complete);
  if (last.section == static_cast<std::size_t>(RunSection::step) && last.is_counted) count_step();
  if (open_.empty())
    open({.section = kOutOfSection,
          .is_measured = num_steps_ >= options_.config.ft_num_warmup_iters});
  else
    restart_deadline();
}

void SectionWatch::open(Open next) {
  next.start_s = options_.clock_s();
  open_.push_back(next);
  restart_deadline();
}

void SectionWatch::close(bool is_complete) {
  const Open last = open_.back();
  open_.pop_back();
  if (is_complete && last.is_measured)
    longest_s_[last.section] =
        std::max(longest_s_[last.section], options_.clock_s() - last.start_s);
}

void SectionWatch::restart_deadline() {
  if (!options_.set_deadline) return;
  const Open& current = open_.back();
  // A step of the warm-up, and what follows it, has no limit. An interrupted section has.
  const bool is_step = current.section == static_cast<std::size_t>(RunSection::step);
  const bool is_unlimited =
      is_step ? is_warming_up() : current.section == kOutOfSection && !current.is_measured;
  const std::optional<double> limit = limits_.seconds[current.section];
  if (is_unlimited || !limit) return options_.set_deadline({});
  options_.set_deadline(
      {.what = describe(current.section),
       .limit = std::chrono::milliseconds(std::max(std::llround(*limit * 1000), 1LL)),
       .source = limits_.is_calculated[current.section]
                     ? "--calc-ft-timeouts: see " + section_limits_path(options_.save).string()
                 : current.section == kOutOfSection ? "--ft-rank-out-of-section-timeout"
                                                    : "--ft-rank-section-timeouts"});
}

bool SectionWatch::set_load(const StepLoad& load) {
  if (!is_enabled_) return false;
  const StepLoad before = std::exchange(limits_.load, load);
  if (before == StepLoad{} || before == load) return false;
  const SectionLimits given = SectionLimits::from(options_.config);
  bool has_discarded = false;
  for (std::size_t i = 0; i < longest_s_.size(); ++i) {
    const bool depends_on_batch =
        i == static_cast<std::size_t>(RunSection::step) || i == kOutOfSection;
    if (before.world_size == load.world_size && !depends_on_batch) continue;
    longest_s_[i] = 0;
    if (!limits_.is_calculated[i]) continue;
    limits_.seconds[i] = given.seconds[i];
    limits_.is_calculated[i] = false;
    has_discarded = true;
  }
  num_steps_of_load_ = 0;
  restart_deadline();
  return has_discarded;
}

void SectionWatch::count_step() {
  if (is_evaluating_) {
    ++num_evaluation_steps_;
  } else {
    ++num_steps_;
    ++num_steps_of_load_;
  }
}

PerSection<std::optional<double>> SectionWatch::longest(bool is_at_end) const {
  PerSection<bool> is_enough = {};
  is_enough[static_cast<std::size_t>(RunSection::setup)] = is_loaded_;
  is_enough[static_cast<std::size_t>(RunSection::step)] =
      num_steps_of_load_ >= kMinStepsToCalculate;
  is_enough[static_cast<std::size_t>(RunSection::checkpointing)] = num_saves_ > 0;
  is_enough[kOutOfSection] = is_at_end && is_enough[0] && is_enough[1] && is_enough[2];
  PerSection<std::optional<double>> longest;
  for (std::size_t i = 0; i < longest.size(); ++i)
    if (is_enough[i] && longest_s_[i] > 0) longest[i] = longest_s_[i];
  return longest;
}

std::string SectionWatch::calculate(const ObjectGroup& world, bool is_at_end) {
  if (!is_enabled_ || !options_.config.calc_ft_timeouts) return "";
  const PerSection<std::optional<double>> own = longest(is_at_end);
  std::vector<double> numbers;
  for (const std::optional<double>& seconds : own) numbers.push_back(seconds.value_or(0));
  numbers = all_reduce_max(world, std::move(numbers), "section times");
  PerSection<std::optional<double>> of_all;
  for (std::size_t i = 0; i < of_all.size(); ++i)
    if (numbers[i] > 0) of_all[i] = numbers[i];
  limits_.update(of_all, options_.config.ft_safety_factor);
  restart_deadline();
  if (world.axis.rank == 0) write_calculated_limits(section_limits_path(options_.save), limits_);
  return limits_.text();
}

}  // namespace megatron
