#include "megatron/training/resilience/section_watch.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

namespace megatron {
namespace {

/// Fewer steps say too little about the longest.
constexpr std::int64_t kMinStepsToCalculate = 16;

std::string describe(std::size_t section) {
  if (section == kOutOfSection) return "what lies between the sections";
  return std::string("the section '") + kRunSectionNames[section] + "'";
}

}  // namespace

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
