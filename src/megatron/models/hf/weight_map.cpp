#include "megatron/models/hf/weight_map.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"

namespace megatron {
namespace {

/// What the marks of a pattern stand for.
using Marks = std::map<char, std::string>;

/// Returns the length of the text at the begin of `name` that a mark can stand for; 0: none.
std::size_t marked_length(char mark, std::string_view name) {
  if (mark == 'w') return name.starts_with("weight") ? 6 : name.starts_with("bias") ? 4 : 0;
  return std::min(name.find_first_not_of("0123456789"), name.size());
}

/// Returns nothing when the name does not match.
std::optional<Marks> match(std::string_view pattern, std::string_view name) {
  Marks marks;
  while (!pattern.empty()) {
    const bool is_mark = pattern[0] == '{';
    const std::size_t length = is_mark ? marked_length(pattern[1], name) : 1;
    if (length == 0 || name.empty() || (!is_mark && name[0] != pattern[0])) return std::nullopt;
    if (is_mark) marks[pattern[1]] = name.substr(0, length);
    pattern.remove_prefix(is_mark ? 3 : 1);
    name.remove_prefix(length);
  }
  return name.empty() ? std::optional(marks) : std::nullopt;
}

std::string with_marks(std::string pattern, const Marks& marks) {
  for (const auto& [mark, text] : marks) {
    const auto place = pattern.find(std::string{'{', mark, '}'});
    if (place != std::string::npos) pattern.replace(place, 3, text);
  }
  return pattern;
}

/// Adds the tensors of the rows that match: those of each expert in turn.
void add_tensors(const HfFamily& family, std::int64_t num_experts, WeightMapping& mapping) {
  std::vector<std::pair<const TensorRow*, Marks>> matches;
  for (const TensorRow& row : family.tensors)
    if (auto marks = match(row.ours, mapping.ours)) matches.emplace_back(&row, *marks);
  for (std::int64_t expert = 0; expert == 0 || expert < num_experts; ++expert) {
    for (auto& [row, marks] : matches) {
      const bool is_by_expert = row->theirs.find("{e}") != std::string::npos;
      if (!is_by_expert && expert > 0) continue;
      marks['e'] = std::to_string(expert);
      (row->is_alternative ? mapping.alternatives : mapping.theirs)
          .push_back({.name = with_marks(row->theirs, marks),
                      .part = {.blocks = row->blocks,
                               .is_transposed = row->is_transposed,
                               .expert = is_by_expert ? std::optional(expert) : std::nullopt}});
    }
  }
}

/// Throws UserError naming the parameters that would be written to one and the same tensor, as the
/// norms of a dense and of a mixture-of-experts layer.
void require_distinct_tensors(const std::string& model_type,
                              const std::vector<WeightMapping>& mappings) {
  std::map<std::string_view, std::string_view> owners;
  std::vector<std::string> doubled;
  for (const WeightMapping& mapping : mappings) {
    for (const HfTensor& theirs : mapping.theirs) {
      const auto [owner, is_new] = owners.emplace(theirs.name, mapping.ours);
      if (!is_new) doubled.push_back(std::string(owner->second) + " and " + mapping.ours);
    }
  }
  require_no_names("Hugging Face model_type '" + model_type +
                       "' has one tensor for several parameters of the model",
                   doubled, "a layer has either experts or a dense MLP");
}

}  // namespace

std::vector<WeightMapping> map_weights(const HfFamily& family,
                                       std::span<const std::string> our_names,
                                       std::int64_t num_experts) {
  std::vector<WeightMapping> mappings;
  std::vector<std::string> homeless;
  for (const std::string& name : our_names) {
    mappings.push_back({.ours = name});
    add_tensors(family, num_experts, mappings.back());
    if (mappings.back().theirs.empty()) homeless.push_back(name);
  }
  require_no_names("Hugging Face model_type '" + family.model_type +
                       "' has no tensors for parameters of the model",
                   homeless,
                   "choose another --hf-model-type, or keep the model in --format megatron");
  require_distinct_tensors(family.model_type, mappings);
  return mappings;
}

bool has_hf_tensor(const HfFamily& family, std::string_view our_name) {
  return std::ranges::any_of(
      family.tensors, [&](const TensorRow& row) { return match(row.ours, our_name).has_value(); });
}

std::string full_hf_name(const HfFamily& family, const std::string& name) {
  if (name.starts_with(family.prefix) || name.starts_with("lm_head.")) return name;
  return family.prefix + name;
}

bool is_hf_buffer(const HfFamily& family, std::string_view full_name) {
  return full_name.ends_with("rotary_emb.inv_freq") ||
         std::ranges::any_of(family.buffers, [&](const std::string& ending) {
           return full_name.ends_with(ending);
         });
}

std::string hf_embedding_name(const HfFamily& family) {
  const std::string ours[] = {"embedding.word_embeddings.weight"};
  return map_weights(family, ours, 0).front().theirs.front().name;
}

}  // namespace megatron
