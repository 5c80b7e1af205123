#include "megatron/config/field_index.h"

#include <algorithm>
#include <array>

#include "megatron/config/field_values.h"
#include "megatron/config/problems.h"

namespace megatron {
namespace {

/// The names of Megatron-LM's flags in transformers, DeepSpeed, nanoGPT, torchtitan and forks of
/// Megatron-LM, or words on what to do instead.
constexpr std::array<std::pair<std::string_view, std::string_view>, 42> kOtherNames{{
    {"learning-rate", "lr"},
    {"max-steps", "train-iters"},
    {"steps", "train-iters"},
    {"iterations", "train-iters"},
    {"max-iters", "train-iters"},
    {"num-epochs", "train-epochs"},
    {"num-train-epochs", "train-epochs"},
    {"train-batch-size", "global-batch-size"},
    {"per-device-train-batch-size", "micro-batch-size"},
    {"gradient-accumulation-steps", "global-batch-size"},
    {"output-dir", "save"},
    {"checkpoint-dir", "save"},
    {"save-steps", "save-interval"},
    {"eval-steps", "eval-interval"},
    {"logging-steps", "log-interval"},
    {"model-name-or-path", "load"},
    {"resume", "load"},
    {"resume-from-checkpoint", "load"},
    {"model", "load"},
    {"warmup-steps", "lr-warmup-iters"},
    {"warmup-ratio", "lr-warmup-fraction"},
    {"lr-scheduler-type", "lr-decay-style"},
    {"max-grad-norm", "clip-grad"},
    {"max-length", "seq-length"},
    {"max-seq-length", "seq-length"},
    {"block-size", "seq-length"},
    {"context-length", "seq-length"},
    {"layers", "num-layers"},
    {"heads", "num-attention-heads"},
    {"num-key-value-heads", "use --group-query-attention --num-query-groups N"},
    {"pad-vocab-size-to", "padded-vocab-size"},
    {"train-weighted-split-paths-path", "per-split-data-args-path"},
    {"use-mpi", "leave it out: `megatron launch` or the environment of mpirun places the ranks"},
    {"embed-layernorm", "leave it out: no norm follows the embedding in this version"},
    {"trigger-path", "leave it out: SIGTERM and SIGUSR1 make a run save and exit"},
    {"use-dynamic-batch-size",
     "leave it out: --sft-packing-strategy and --document-packing-strategy fill samples"},
    {"intermediate-size", "ffn-hidden-size"},
    {"rope-theta", "rotary-base"},
    {"tokenizer", "tokenizer-model"},
    {"tp", "tensor-model-parallel-size"},
    {"pp", "pipeline-model-parallel-size"},
    {"max-tokens", "max-new-tokens"},
}};

/// Returns the longest word of a kebab-case name.
std::string longest_word(const std::string& spelling) {
  std::string longest, word;
  for (const char c : spelling + "-") {
    if (c != '-' && c != '_') {
      word += c;
    } else {
      if (word.size() > longest.size()) longest = word;
      word.clear();
    }
  }
  return longest;
}

}  // namespace

FieldIndex::FieldIndex(const FieldSet& fields) : fields_(fields) {
  for (const Field& field : fields.fields) {
    if (field.is_positional) continue;
    spellings_[field.flag().substr(2)] = {&field, false};
    for (const std::string& alias : field.aliases) spellings_[alias] = {&field, false};
    for (const std::string& off : field.off_flags) spellings_[off] = {&field, true};
  }
}

Spelling FieldIndex::find(const std::string& spelling) const {
  const auto found = spellings_.find(spelling);
  return found == spellings_.end() ? Spelling{} : found->second;
}

template <class Wanted>
std::string FieldIndex::nearest_of(const std::string& spelling, Wanted wanted) const {
  std::vector<std::string> names;
  for (const auto& [name, meaning] : spellings_) {
    if (wanted(*meaning.field)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return nearest_name(spelling, names);
}

std::string FieldIndex::nearest(const std::string& spelling) const {
  std::string near = nearest_of(spelling, [](const Field& field) { return !field.is_hidden; });
  return near.empty()
             ? nearest_of(spelling,
                          [](const Field& field) { return field.is_hidden && !field.is_refused; })
             : near;
}

std::string FieldIndex::suggestion(const std::string& spelling, std::string_view command) const {
  for (const auto& [other, ours] : kOtherNames) {
    if (spelling == other && ours.find(' ') != std::string_view::npos) return std::string(ours);
    if (spelling == other && find(std::string(ours)).field != nullptr)
      return "did you mean --" + std::string(ours) + "?";
  }
  if (const std::string near = nearest(spelling); !near.empty())
    return "did you mean --" + near + "?";
  const std::string refused =
      nearest_of(spelling, [](const Field& field) { return field.is_refused; });
  if (!refused.empty())
    return "the nearest flag of Megatron-LM, --" + refused + ", " + find(refused).field->help;
  const std::string word = longest_word(spelling);
  const std::string search = word.size() < 2 ? "" : ", or search with megatron help " + word;
  return "see megatron " + std::string(command) + " --help" + search;
}

std::string inverted(const std::string& value) { return boolean_value(value) ? "false" : "true"; }

}  // namespace megatron
