// Recomputation and offload never change a bit: every way to recompute or to offload activations
// has the losses and the weights of the same layout without it, in every family and schedule,
// dropout included, in float32 and bf16.
//
// The fast set covers each kind of saving with every family and every schedule, and each way to
// save with every kind of parallelism; MEGATRON_TEST_LAYOUTS=all takes every combination.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>

#include "layouts/chosen_layouts.h"
#include "layouts/layout_run.h"
#include "layouts/pairwise.h"

namespace megatron::layouts {
namespace {

/// Returns the flags of an offload to a file, of tensors of any size.
Flags offload(Flags more) {
  more.insert(more.end(), {"--offload-folder", std::filesystem::temp_directory_path().string(),
                           "--min-offloaded-tensor-size", "0"});
  return more;
}

/// Ways to recompute and to offload, for models without and with experts.
const std::vector<Flags>& recomputations() {
  static const std::vector<Flags> all = {
      {"--recompute-granularity", "full"},
      {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers",
       "3"},
      {"--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers",
       "1"},
      {"--recompute-granularity", "full", "--distribute-saved-activations"},
      {"--recompute-granularity", "full", "--recompute-layers", "[1,0]*2"},
      {"--recompute-granularity", "selective", "--recompute-modules", "layernorm"},
      {"--recompute-granularity", "selective", "--recompute-modules", "layernorm", "mlp"},
      {"--recompute-granularity", "selective", "--recompute-modules", "mlp", "core_attn",
       "--num-microbatches-with-partial-activation-checkpoints", "1"},
      {"--num-microbatches-with-partial-activation-checkpoints", "2"},
      offload({"--cpu-offloading"}),
      offload({"--cpu-offloading-num-layers", "1", "--recompute-granularity", "full"}),
      offload({"--cpu-offloading", "--recompute-granularity", "selective", "--recompute-modules",
               "layernorm", "mlp"}),
      offload({"--fine-grained-activation-offloading", "--offload-modules", "attn_norm",
               "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "mlp", "expert_fc1", "moe_act"}),
      offload({"--cpu-offloading", "--cpu-offloading-weights"}),
      offload({"--cpu-offloading-num-layers", "1", "--cpu-offloading-weights",
               "--no-cpu-offloading-activations", "--optimizer-cpu-offload",
               "--recompute-granularity", "full"})};
  return all;
}
constexpr std::size_t kDistributed = 3, kFirstOfWeights = 13;
/// The kind of each of them: full, distributed, selective, by microbatches, offload of layers, of
/// modules, and of weights.
constexpr std::array<std::int64_t, 15> kKinds{0, 0, 0, 1, 0, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6};

/// Indices into pipelines(): none, each kind of schedule, and stages without layers. The schedule
/// `auto` is not among them, because it follows from times that each run measures.
constexpr std::array<std::size_t, 9> kPipelines{0, 1, 3, 4, 5, 7, 8, 10, 12};

/// Returns the flags for a family: modules of experts take the place of "mlp", or are left out.
Flags fitted(Flags flags, const Family& family) {
  const auto modules = std::ranges::find(flags, "--recompute-modules");
  if (family.name == "mla" && modules != flags.end()) flags.insert(modules + 1, "mla_up_proj");
  if (!family.has_experts) {
    std::erase(flags, "expert_fc1");
    std::erase(flags, "moe_act");
    return flags;
  }
  if (std::ranges::count(flags, "--recompute-modules") == 0) return flags;
  const auto mlp = std::ranges::find(flags, "mlp");
  if (mlp == flags.end()) return flags;
  const auto second = flags.insert(mlp + 1, "moe");
  if (family.name == "deepseek" && flags.size() % 2 == 0) *second = "shared_experts";
  return flags;
}

struct MemoryLayout {
  std::size_t family = 0, recompute = 0;
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  std::size_t pipeline = 0;  ///< index into pipelines()
  std::int64_t dp = 1;
  bool has_bf16 = false;

  std::int64_t world_size() const { return tp * dp * pipelines()[pipeline].ranks; }
  bool is_valid() const {
    if (world_size() > 8 || (sequence_parallel && tp == 1)) return false;
    if (recompute >= kFirstOfWeights && !has_bf16) return false;  // for 16-bit weights only
    return recompute != kDistributed || (tp > 1 && !sequence_parallel);
  }

  /// Returns the flags without recomputation.
  Flags flags() const {
    const Layout layout{
        .tp = tp, .dp = dp, .sequence_parallel = sequence_parallel, .pipeline = pipeline};
    Flags all = flags_of({family, layout}, one_sgd_step());
    all.insert(all.end(), {"--global-batch-size", "4"});
    if (has_bf16) all.emplace_back("--bf16");
    return all;
  }
  Flags recompute_flags() const { return fitted(recomputations()[recompute], families()[family]); }

  std::string text() const {
    std::string words = families()[family].name + ", dp " + std::to_string(dp);
    for (const Flags& part : {flags(), recompute_flags()})
      for (const std::string& flag : part) words += " " + flag;
    return words;
  }
};

std::vector<MemoryLayout> all_layouts() {
  std::vector<MemoryLayout> all;
  for (std::size_t family = 0; family < families().size(); ++family)
    for (std::size_t recompute = 0; recompute < recomputations().size(); ++recompute)
      for (const std::int64_t tp : {1, 2})
        for (const bool sequence_parallel : {false, true})
          for (const std::size_t pipeline : kPipelines)
            for (const std::int64_t dp : {1, 2})
              for (const bool has_bf16 : {false, true}) {
                const MemoryLayout layout{family,   recompute, tp,      sequence_parallel,
                                          pipeline, dp,        has_bf16};
                if (layout.is_valid()) all.push_back(layout);
              }
  return all;
}

std::vector<MemoryLayout> layouts_of_all_kinds() {
  enum : std::size_t { family, recompute, kind, tp, sequence, pipeline, dp, bf16 };
  const auto choices = [](const MemoryLayout& l) {
    return std::array<std::int64_t, 8>{static_cast<std::int64_t>(l.family),
                                       static_cast<std::int64_t>(l.recompute),
                                       kKinds.at(l.recompute),
                                       l.tp,
                                       l.sequence_parallel,
                                       static_cast<std::int64_t>(l.pipeline),
                                       l.dp,
                                       l.has_bf16};
  };
  const ChoicePairs pairs{{kind, family},        {kind, pipeline},     {recompute, tp},
                          {recompute, sequence}, {recompute, dp},      {recompute, bf16},
                          {pipeline, tp},        {pipeline, sequence}, {pipeline, dp},
                          {pipeline, bf16},      {family, tp},         {family, sequence},
                          {family, dp},          {family, bf16}};
  // The smaller world is preferred, because its ranks are threads.
  return cover_pairs(
      all_layouts(), choices,
      [](const MemoryLayout& layout, const auto&) { return -layout.world_size(); }, pairs);
}

/// Expects the bits of the run without recomputation.
void expect_same_bits(const MemoryLayout& layout) {
  SCOPED_TRACE(layout.text());
  Flags recomputed = layout.flags();
  const Flags more = layout.recompute_flags();
  recomputed.insert(recomputed.end(), more.begin(), more.end());
  const TrainingResult expected = train_in_layout(layout.flags(), layout.world_size()),
                       actual = train_in_layout(recomputed, layout.world_size());
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.grad_norms, expected.grad_norms);
  ASSERT_EQ(actual.after.size(), expected.after.size());
  for (const auto& [name, after] : expected.after)
    EXPECT_TRUE(actual.after.at(name).equal(after)) << name;
}

TEST(MemoryLayouts, HaveTheBitsOfActivationsInMemory) {
  const auto layouts = wants_all() ? all_layouts() : layouts_of_all_kinds();
  RecordProperty("layouts", static_cast<int>(layouts.size()));
  for (const MemoryLayout& layout : layouts) expect_same_bits(layout);
}

TEST(MemoryLayouts, RandomOnesHaveTheBitsOfActivationsInMemory) {
  const unsigned seed = layout_seed();
  SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<MemoryLayout> all = all_layouts();
  for (int i = 0; i < 3; ++i) expect_same_bits(all[random() % all.size()]);
}

}  // namespace
}  // namespace megatron::layouts
