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
  if (!options_.save.empty()) read_calculated_limits(section_limits_path(options_.save), limits_);
  open_.push_back({.section = kOutOfSection, .is_measured = false});
}

SectionWatch::~SectionWatch() {
  if (is_enabled_ && options_.set_deadline) options_.set_deadline("", std::chrono::milliseconds(0));
}

SectionWatch::Scope::Scope(SectionWatch& watch, RunSection section)
    : watch_(watch), num_exceptions_(std::uncaught_exceptions()) {
  watch_.begin(section);
}

SectionWatch::Scope::~Scope() { watch_.end(std::uncaught_exceptions() == num_exceptions_); }

bool SectionWatch::is_warming_up() const {
  return (is_evaluating_ ? num_evaluation_steps_ : num_steps_) <
         options_.config.ft_num_warmup_iters;
}

void SectionWatch::begin_setup() {
  begin(RunSection::setup);
  is_in_setup_ = is_enabled_;
}

void SectionWatch::begin(RunSection section) {
  if (!is_enabled_) return;
  const bool is_step = section == RunSection::step;
  if (is_step && std::exchange(is_in_setup_, false)) end(/*is_complete=*/true);
  if (open_.back().section == kOutOfSection)
    close(/*is_complete=*/true);  // what lay before this section
  else
    open_.back().is_measured = false;  // it is interrupted
  open(static_cast<std::size_t>(section), !is_step || !is_warming_up());
}

void SectionWatch::end(bool is_complete) {
  if (!is_enabled_) return;
  const auto section = static_cast<RunSection>(open_.back().section);
  close(is_complete);
  if (section == RunSection::step) ++(is_evaluating_ ? num_evaluation_steps_ : num_steps_);
  if (open_.empty())
    open(kOutOfSection, num_steps_ >= options_.config.ft_num_warmup_iters);
  else
    restart_deadline();
}

void SectionWatch::open(std::size_t section, bool is_measured) {
  open_.push_back({section, is_measured, options_.clock_s()});
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
  options_.set_deadline(
      describe(current.section),
      std::chrono::milliseconds(
          is_unlimited || !limit ? 0 : std::max(std::llround(*limit * 1000), 1LL)));
}

PerSection<std::optional<double>> SectionWatch::longest(bool is_at_end) const {
  PerSection<bool> is_enough = {};
  is_enough[static_cast<std::size_t>(RunSection::setup)] = is_loaded_;
  is_enough[static_cast<std::size_t>(RunSection::step)] = num_steps_ >= kMinStepsToCalculate;
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
