// The forms of the rules between settings, and the lists of all rules. A rules file reads like a
// list: needs(&Parallel::overlap_param_gather, &Parallel::overlap_grad_reduce) refuses the first
// without the second. What Megatron-LM accepts without effect has a note: tunes(), idle(), note().
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/validate_settings.h"

namespace megatron {

struct FimConfig;
struct LossScaleConfig;
struct MoeConfig;
struct OffloadConfig;
struct RecomputeConfig;

inline std::string text_of(std::int64_t value) { return std::to_string(value); }

/// Short names and the forms of rules, for the *_rules.cpp files.
namespace rules {

using S = const Settings&;
using Checkpoint = CheckpointConfig;
using Data = DataConfig;
using FaultTolerance = FaultToleranceConfig;
using Fim = FimConfig;
using Legacy = LegacyFlags;
using Logger = LoggerConfig;
using LossScale = LossScaleConfig;
using Memory = MemoryConfig;
using Model = TransformerConfig;
using Moe = MoeConfig;
using Offload = OffloadConfig;
using Optimizer = OptimizerConfig;
using Parallel = ParallelConfig;
using Recompute = RecomputeConfig;
using Rerun = RerunConfig;
using Scheduler = SchedulerConfig;
using Tokenizer = TokenizerConfig;
using Training = TrainingConfig;

/// How a message shows a setting.
using Show = std::string (*)(const Setting&, S);
inline std::string show_flag(const Setting& setting, S) { return setting.flag(); }

class Words;

/// A part of a message: text, a number, a setting, which is shown as its flag, or a function of the
/// settings that returns one of these. It refers to its text, so Words copy it at once.
class Piece {
 public:
  Piece(const char* text) : text_(text) {}
  Piece(const std::string& text) : text_(text) {}
  Piece(std::int64_t number) : number_(number) {}
  template <class T, class V>
  Piece(V T::*member) : setting_(member) {}
  Piece(const Setting& setting, Show show = show_flag) : setting_(setting), show_(show) {}
  template <std::invocable<S> F>
  Piece(F words);

 private:
  friend class Words;
  std::string_view text_;
  std::optional<std::int64_t> number_;
  std::optional<Setting> setting_;
  Show show_ = show_flag;
  std::function<Words(S)> words_of_;
};

Piece value(const Setting& setting);
/// Shows "--flag value".
Piece with_value(const Setting& setting);
/// Shows what to write on the command line: "--flag N", or "--no-flag" of one that is on by
/// default.
Piece to_add(const Setting& setting);

/// A text in which settings stand: {"add ", &Training::bf16}. Its special members are in rule.cpp,
/// because lists of rules make thousands of them.
class Words {
 public:
  Words();
  Words(const Words&);
  Words(Words&&) noexcept;
  Words& operator=(const Words&);
  Words& operator=(Words&&) noexcept;
  ~Words();
  template <std::convertible_to<Piece> T>
  Words(const T& piece) : Words(std::initializer_list<Piece>{piece}) {}
  Words(std::initializer_list<Piece> pieces);

  bool empty() const { return parts_.empty(); }
  std::string text(S settings) const;
  bool mentions_any(const FieldNames& names, S settings) const;
  friend Words operator+(Words first, const Words& second);

 private:
  struct Part {
    std::string text;
    std::optional<Setting> setting;
    Show show;
    std::function<Words(S)> words_of;
  };
  std::vector<Part> parts_;
};

template <std::invocable<S> F>
Piece::Piece(F words)
    : words_of_([words = std::move(words)](S settings) { return Words(words(settings)); }) {}

/// What is wrong, and how to mend it. It is not reported if the value of a setting that it mentions
/// or that is among `reads` could not be read.
struct Message {
  Words what, got, fix;
  std::vector<Setting> reads = {};
  bool is_note = false;  ///< `got` is a remark on `what`, which is accepted
  UserError::Parts text(S settings) const;
  bool mentions_any(const FieldNames& names, S settings) const;
};

/// When a rule applies. A setting stands for "it is given", which means that it differs from its
/// default, and a function of the settings, which has no words, for its result.
struct Condition {
  template <class T, class V>
  Condition(V T::*member) : Condition(Setting(member)) {}
  template <std::predicate<S> F>
  Condition(F predicate) : holds(std::move(predicate)) {}
  Condition(const Setting& setting);
  Condition(std::function<bool(S)> when, Words shown, std::vector<Setting> read = {})
      : holds(std::move(when)), words(std::move(shown)), reads(std::move(read)), to_add(words) {}

  std::function<bool(S)> holds;
  Words words;
  std::vector<Setting> reads;
  Words to_add;  ///< what to add so that it holds: "--flag N"
};

/// A setting that is given, which messages show with its value.
Condition valued(const Setting& setting);
/// A setting with this value: is(&Optimizer::optimizer, "adam").
Condition is(const Setting& setting, const std::string& value);
/// Holds if `condition` does not.
Condition without(const Condition& condition);
/// Holds if one of them does. Its words are of those that hold: "--a, --b".
Condition any(const std::vector<Condition>& conditions);

/// Returns what is wrong, or nothing.
using Check = std::function<std::optional<Message>(S)>;

/// A list of rules. The forms below return one, and {needs(…), excludes(…)} joins several.
class Rules {
 public:
  explicit Rules(Check check) { list_.push_back(std::make_shared<Check>(std::move(check))); }
  Rules(std::initializer_list<Rules> lists);
  void add(const Rules& more);
  const std::vector<std::shared_ptr<const Check>>& list() const { return list_; }

 private:
  std::vector<std::shared_ptr<const Check>> list_;
};

/// Replaces words of a form: `why` ends the problem, `fix` is the whole fix, or follows a note.
struct Wording {
  Words why = {}, fix = {};
};

/// Refuses `one` without `other`.
Rules needs(const Condition& one, const Condition& other, const Wording& wording = {});
/// Refuses `one` together with `other`, or with each of `others`.
Rules excludes(const Condition& one, const Condition& other, const Wording& wording = {});
Rules excludes(const Condition& one, std::initializer_list<Condition> others,
               const Wording& wording = {});
/// Notes that each of `some` has no effect without `other`: Megatron-LM accepts it too.
Rules tunes(std::initializer_list<Condition> some, const Condition& other,
            const Wording& wording = {});
/// Notes that each of `some` has no effect with `other`.
Rules idle(std::initializer_list<Condition> some, const Condition& other,
           const Wording& wording = {});
/// Refuses a value of `size`, if both are given, that is no multiple of the value of `unit`.
Rules divides(const Setting& unit, const Setting& size, const Wording& wording = {});
/// Refuses a number above or below the value of `limit`, if both have one.
Rules at_most(const Setting& limit, const Setting& number, const Wording& wording = {});
Rules at_least(const Setting& limit, const Setting& number, const Wording& wording = {});
/// Refuses a run that does not give a number, which must not be 0: "add --flag N, `meaning`".
Rules required(const Setting& setting, const std::string& meaning);
/// Refuses the first of `conditions` if all of them hold.
Rules refuse(const std::vector<Condition>& conditions, Words got, Words fix);
/// Notes that the first of `conditions` is accepted if all of them hold: "without effect: …".
Rules note(const std::vector<Condition>& conditions, Words remark);
/// Refuses settings for which `is_broken` holds.
Rules rule(const Condition& is_broken, Message message);
/// Refuses settings for which `mistake` finds one, unless one of `reads` could not be read.
Rules reported(std::optional<UserError::Parts> (*mistake)(S), std::vector<Setting> reads);
/// Limits rules to settings for which `applies` holds.
Rules when(const Condition& applies, const Rules& rules);

/// Returns "8 or 12", the multiples of `unit` next to `size`.
std::string multiples_near(std::int64_t size, std::int64_t unit);
/// Returns the largest divisor of `size` up to `most`.
std::int64_t largest_divisor(std::int64_t size, std::int64_t most);

/// Returns the flag that decides the stage of ZeRO, with its value (zero_rules.cpp).
Words stage_flag(S settings);

}  // namespace rules

using rules::Rules;

/// Rules on batches, also of validation, and on the length of a run (batch_rules.cpp).
const Rules& batch_rules();
const Rules& blend_schedule_rules();  ///< on --blend-schedule, a part of batch_rules()
/// Rules on saving, keeping and loading checkpoints (checkpoint_rules.cpp).
const Rules& checkpoint_rules();
/// Rules between the parallel flags, and the limits of this version (parallel_rules.cpp).
const Rules& parallel_rules();
/// Rules on what data-parallel ranks divide among them (zero_rules.cpp).
const Rules& zero_rules();
/// Rules between context parallelism and the sequence, on hybrid context parallelism, and that the
/// architecture fits them (context_rules.cpp).
const Rules& context_rules();
const Rules& hybrid_context_rules();
const Rules& context_sharding_rules();
/// Rules on --fim-data, --document-packing-strategy and --sft (sample_rules.cpp).
const Rules& sample_rules();
const Rules& document_attention_rules();
/// Rules on recomputation, a memory budget (memory_rules.cpp) and offload (offload_rules.cpp).
const Rules& memory_rules();
const Rules& offload_rules();
/// Rules that the recomputed and offloaded layers and parts exist in the architecture
/// (memory_rules.cpp).
const Rules& recomputed_module_rules();
/// Rules on the optimizer and the offload of its state, and on data types (optimizer_rules.cpp).
const Rules& optimizer_settings_rules();
const Rules& precision_rules();
/// Rules on section timeouts and result validation (resilience_rules.cpp).
const Rules& resilience_rules();
/// Rules on profiles, traces and stragglers (profile_rules.cpp).
const Rules& profile_rules();
/// Rules between the pipeline flags, and that the layers fit the pipeline (pipeline_rules.cpp).
const Rules& pipeline_rules();
const Rules& layout_rules();
/// Rules that the architecture fits the degrees of parallelism (parallel_rules.cpp).
const Rules& sharding_rules();
/// Rules on Mamba-2 and on gated delta nets (recurrent_rules.cpp).
const Rules& recurrent_rules();
/// Rules on the experts and their parallelism (moe_rules.cpp), on routers (router_rules.cpp), and
/// on new routers, which need a gradient; a router that is loaded may already be trained.
const Rules& moe_rules();
const Rules& router_rules();
const Rules& new_router_rules();

/// Evaluates every rule and returns a problem for each one that is broken, and the notes: with
/// `noted`, those on these settings.
Problems evaluate(const Rules& rules, const Settings& settings, const FieldNames& skip,
                  const FieldNames* noted = nullptr);

}  // namespace megatron
