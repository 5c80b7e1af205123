#include "megatron/training/architecture_source.h"

#include "megatron/config/problems.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings_tables.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

void copy_member(const Field& field, const TransformerConfig& from, TransformerConfig& to) { field.set(&to, field.get(&from)); }

}  // namespace

TransformerConfig merge_architecture(const TransformerConfig& flags, const Parsed& parsed, const CheckpointSource& source) {
  TransformerConfig merged = source.model;
  for (const Field& field : training_members().set().fields) {
    if (!source.given_knobs.contains(field.name)) copy_member(field, flags, merged);
  }
  for (const Field& field : transformer_table().set().fields) {
    if (parsed.is_set(field.name)) copy_member(field, flags, merged);
  }
  resolve(merged);
  Problems problems;
  for (const ArchitectureDifference& difference : forward_differences(merged, source.model)) {
    problems.add({"the flags ask for " + difference.member + " " + difference.left,
                  source.folder.string() + " holds a model with " + difference.right, "leave the flag out, or load another checkpoint"});
  }
  problems.throw_if_any();
  return merged;
}

}  // namespace megatron
