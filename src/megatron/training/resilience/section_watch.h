// Limits how long a rank may be in each section of a run: setup, step, checkpointing, and what lies
// between them. A rank that is longer in one ends the run, so that the launcher starts it again
// before --distributed-timeout-minutes have passed. The sections, and when which timeout is
// calculated, are those of Megatron-LM with nvidia-resiliency-ext (`--enable-ft-package`).
#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/monotonic_clock.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/section_timeouts.h"
#include "megatron/parallel/communicators.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {

/// A value for each RunSection, and behind them one for what lies between the sections.
template <class T>
using PerSection = std::array<T, kRunSectionNames.size() + 1>;
inline constexpr std::size_t kOutOfSection = kRunSectionNames.size();

/// What the length of a step depends on.
struct StepLoad {
  std::int64_t world_size = 0;        ///< 0: unknown, as in a file of nvidia-resiliency-ext
  std::int64_t num_microbatches = 0;  ///< of each rank and step
  bool operator==(const StepLoad&) const = default;
};

/// The timeouts of a run's sections, and their file ft_state.json, which nvidia-resiliency-ext
/// reads and writes too.
struct SectionLimits {
  PerSection<std::optional<double>> seconds = {};  ///< nullopt: no limit
  PerSection<bool> is_calculated = {};             ///< from measured times, not given
  StepLoad load = {};                              ///< with which they were calculated

  /// Takes the limits of the flags.
  static SectionLimits from(const FaultToleranceConfig& config);
  /// Sets the limits of the sections for which `longest_s` has a value to `factor` times it. A
  /// limit that was calculated before becomes the mean of the old and the new one.
  void update(const PerSection<std::optional<double>>& longest_s, double factor);
  bool has_any() const;
  /// Returns, for example, "setup 600 s, step 30 s (calculated), checkpointing none, out of section
  /// none".
  std::string text() const;
};

struct SectionWatchOptions {
  FaultToleranceConfig config = {};
  std::filesystem::path save = {};  ///< folder of ft_state.json; empty: none
  SetDeadline set_deadline = {};    ///< null: sections have no limit
  std::function<double()> clock_s = monotonic_seconds;
};

class SectionWatch {
 public:
  /// Watches nothing.
  SectionWatch() = default;
  /// Watches nothing unless --enable-ft-package is given.
  explicit SectionWatch(SectionWatchOptions options);
  /// Removes the deadline.
  ~SectionWatch();
  SectionWatch(const SectionWatch&) = delete;
  SectionWatch& operator=(const SectionWatch&) = delete;

  /// A section, from enter() to destruction. The watch must outlive it.
  class [[nodiscard]] Scope {
   public:
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class SectionWatch;
    Scope(SectionWatch& watch, RunSection section, bool is_counted);
    SectionWatch& watch_;
    const int num_exceptions_;
  };
  /// Enters a section. In one that interrupts another, only the inner one counts, and the time of
  /// the outer one begins anew afterwards.
  Scope enter(RunSection section) { return {*this, section, /*is_counted=*/true}; }
  /// Begins the section setup, which ends when the first step begins.
  void begin_setup();
  /// A training step or a pass of an evaluation. It has no limit, and is not measured, while the
  /// run or the evaluation warms up.
  Scope enter_step() { return enter(RunSection::step); }
  /// What belongs to a step although other sections lie between. It has the limit of a step.
  Scope enter_end_of_step() { return {*this, RunSection::step, /*is_counted=*/false}; }
  /// An evaluation, from construction to destruction. Its passes warm up anew.
  class Evaluation {
   public:
    explicit Evaluation(SectionWatch& watch) : watch_(watch) {
      watch_.is_evaluating_ = true, watch_.num_evaluation_steps_ = 0;
    }
    ~Evaluation() { watch_.is_evaluating_ = false; }
    Evaluation(const Evaluation&) = delete;
    Evaluation& operator=(const Evaluation&) = delete;

   private:
    SectionWatch& watch_;
  };

  /// Sets what the steps from now on depend on. Limits that were calculated for another load are
  /// discarded, and so is what was measured. Returns whether there were such limits.
  bool set_load(const StepLoad& load);
  /// Records that the state came from a checkpoint, whose reading is a part of setup.
  void record_load() { is_loaded_ = true; }
  void record_save() { ++num_saves_; }

  /// With --calc-ft-timeouts, calculates the limits anew from the longest sections of all ranks;
  /// rank 0 writes them to ft_state.json. Returns the limits as text, else "". Collective over
  /// `world`. Throws a UserError if the file cannot be written.
  std::string calculate(const ObjectGroup& world, bool is_at_end);

  bool is_enabled() const { return is_enabled_; }
  const SectionLimits& limits() const { return limits_; }
  /// Returns why ft_state.json could not be read, in which case its limits are calculated anew; or
  /// "".
  const std::string& file_problem() const { return file_problem_; }

 private:
  /// A section that is open, or the time outside of all.
  struct Open {
    std::size_t section = kOutOfSection;
    bool is_measured = true;
    double start_s = 0;
    bool is_counted = true;  ///< as a step
  };
  bool is_warming_up() const;
  /// Returns the longest time of each section that is enough to calculate its limit; nullopt: not
  /// yet.
  PerSection<std::optional<double>> longest(bool is_at_end) const;
  void open(Open next);
  /// Ends the innermost interval. `is_complete`: its time counts.
  void close(bool is_complete);
  void restart_deadline();
  void begin(RunSection section, bool is_counted);
  void count_step();
  void end(bool is_complete);

  bool is_enabled_ = false;
  SectionWatchOptions options_;
  SectionLimits limits_;
  std::string file_problem_;
  std::vector<Open> open_;  ///< from the outermost to the innermost; the first is out of section
  PerSection<double> longest_s_ = {};
  std::int64_t num_steps_ = 0, num_evaluation_steps_ = 0, num_saves_ = 0;
  std::int64_t num_steps_of_load_ = 0;  ///< of training, with this load
  bool is_evaluating_ = false, is_in_setup_ = false, is_loaded_ = false;
};

}  // namespace megatron
