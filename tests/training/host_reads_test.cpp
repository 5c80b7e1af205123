// Checks that a step is only queued on the device: no operator between its first and its last reads
// a value on the host. One read of all results follows.
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "megatron/training/step/train_step.h"
#include "support/train_step.h"
#include "training/fake_model.h"
#include "training/small_run.h"

namespace megatron {
namespace {

std::atomic<int> host_reads{0};

/// Operators whose result or output shape requires a device synchronization.
const std::set<std::string>& reading_operators() {
  static const std::set<std::string> names{
      "aten::item",    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal",
      "aten::nonzero", "aten::masked_select",       "aten::unique_dim", "aten::_unique2"};
  return names;
}

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
  if (reading_operators().contains(function.name())) ++host_reads;
  return nullptr;
}

/// Counts host reads on every thread during its lifetime.
class ReadCounter {
 public:
  ReadCounter()
      : handle_(at::addGlobalCallback(
            at::RecordFunctionCallback(observe).scopes({at::RecordScope::FUNCTION}))) {
    host_reads = 0;
  }
  ReadCounter(const ReadCounter&) = delete;
  ReadCounter& operator=(const ReadCounter&) = delete;
  ~ReadCounter() { at::removeCallback(handle_); }

 private:
  at::CallbackHandle handle_;
};

TEST(HostReads, TheCounterCounts) {
  const ReadCounter counter;
  EXPECT_EQ(at::ones({}).item<float>(), 1);
  EXPECT_GT(host_reads, 0);
}

class HostReadsOf : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(HostReadsOf, NoneInAStep) {
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags(GetParam())), out);
  testing_models::ListSource batch(
      {trainer.data.train->next(), trainer.data.train->next()});  // data is created on the host
  const TrainStepContext parts{
      *trainer.state.model, *trainer.state.weights, *trainer.state.optimizer, batch,
      trainer.timers,       trainer.plan.rank,      trainer.plan.pipeline};
  const TrainStepOptions options{.iteration = 1,
                                 .num_microbatches = 2,
                                 .update = {.lr = 1e-3, .weight_decay = 0.1, .count_zeros = true}};
  train_step(parts, options);
  const ReadCounter counter;
  EXPECT_TRUE(train_step(parts, options).update.applied);
  EXPECT_EQ(host_reads, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Gpt, HostReadsOf,
    testing::Values(std::vector<std::string>{},
                    std::vector<std::string>{"--bf16", "--calculate-per-token-loss"},
                    std::vector<std::string>{"--fp16", "--loss-scale", "128"},
                    std::vector<std::string>{"--optimizer", "sgd", "--attention-dropout", "0"},
                    std::vector<std::string>{"--position-embedding-type", "rope", "--normalization",
                                             "RMSNorm", "--swiglu", "--window-size", "4,0"}));

}  // namespace
}  // namespace megatron
