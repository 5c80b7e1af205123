// The layouts and model families of the layout table.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace megatron::layouts {

inline constexpr std::int64_t kMaxRanks = 16;

/// Pipeline stages and their schedule.
struct Pipeline {
  std::int64_t ranks = 1, chunks = 1;  ///< chunks per rank; 0 when the schedule decides
  /// `stages` is the value of --pipeline-model-parallel-layout.
  std::string schedule = "1f1b", stages = {};

  /// The kind of assignment of stages to ranks, which is what interacts with other choices: none,
  /// one each, several, V (or what a search chooses). The schedules themselves are tested
  /// elsewhere.
  std::int64_t shape() const { return ranks == 1 ? 0 : chunks == 1 ? 1 : chunks == 0 ? 3 : 2; }
  std::vector<std::string> flags() const;
};

/// Returns every schedule with at most the stages it needs. Layouts hold an index into this table.
const std::vector<Pipeline>& pipelines();

/// The dispatchers of experts. Layouts hold an index into this table.
inline constexpr std::array<const char*, 3> kDispatchers{"alltoall", "flex", "allgather"};

struct Layout {
  std::int64_t tp = 1, dp = 1;
  bool sequence_parallel = false, tp_comm_overlap = false;
  bool distributed_optimizer = false, overlap_grad_reduce = false, overlap_param_gather = false;
  std::size_t pipeline = 0;      ///< index into pipelines()
  std::int64_t ep = 1, etp = 0;  ///< etp 0: as tp
  std::size_t dispatcher = 0;    ///< index into kDispatchers

  std::int64_t world_size() const { return tp * dp * pipelines()[pipeline].ranks; }

  /// Returns whether Megatron's rules allow the layout.
  bool is_valid() const;

  std::vector<std::string> flags() const;

  /// Returns a description such as "dp 4 --tensor-model-parallel-size 2 --sequence-parallel".
  std::string text() const;
};

using Flags = std::vector<std::string>;

/// Returns the flags of a model of Llama's kind, and then `more`.
Flags llama(const Flags& more);

/// Returns the flags of such a model with multi-latent attention, whose queries and keys have 10
/// channels and whose values have 5, and then `more`.
Flags latents(const Flags& more);

/// Returns the flags of a tokenizer for BERT, which has 61 ids.
Flags bert(const Flags& more = {});

/// Returns the flags of samples of T5, whose decoder has 12 positions, and then `more`.
Flags t5(const Flags& more);

/// A model and its training, as flags after the common ones.
struct Family {
  std::string name;
  Flags flags;
  bool has_experts = false;
  std::string model = "gpt";  ///< as in `pretrain <model>`

  /// Returns the number of depths of multi-token prediction.
  std::int64_t num_depths() const;

  /// Returns whether the family has layers with states, which ranks of cp do not pass on.
  bool is_recurrent() const;

  /// Returns whether context parallelism divides the family's samples.
  bool has_one_sequence() const;

  /// Returns the common flags, those of the family, and then `more`.
  Flags run_flags(const Flags& more) const;
};

/// Returns every family of models, with dropout.
const std::vector<Family>& families();

/// Returns the flags that all runs share: a tiny GPT on mock data, 8 samples per step in
/// microbatches of one.
std::vector<std::string> common_flags();

/// Returns the flags of one step with W − W' = lr·gradient. A learning rate of 2¹⁴ preserves all
/// bits of the gradient.
const Flags& one_sgd_step();

/// One case of the table: a family in a layout.
struct Case {
  std::size_t family = 0;
  Layout layout;
};

inline constexpr std::array<std::int64_t, 3> kDegrees{1, 2, 4};

/// Returns every valid combination.
std::vector<Case> all_cases();

/// Returns a few cases of at most `max_ranks` ranks that cover every valid pair of choices, and
/// rotate through the pipelines.
std::vector<Case> pairwise_cases(std::int64_t max_ranks);

}  // namespace megatron::layouts
