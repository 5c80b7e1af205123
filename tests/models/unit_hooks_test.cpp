// Hooks around units in forward and backward: their order, and weights that exist only inside their
// unit.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

using testing::ElementsAre;

TransformerConfig tiny_config() {
  TransformerConfig config = tiny_gpt();
  make_llama(config);
  return config;
}

/// Runs one microbatch and returns the gradients by name.
std::map<std::string, at::Tensor> gradients_of(Model& model, ParamStore& store) {
  store.zero_gradients();
  const StepOutput output = model.forward_step(patterned_batch(2, 6, 13), /*training=*/true);
  (output.root / 12).backward();
  store.finalize_gradients();
  std::map<std::string, at::Tensor> result;
  for (const Parameter* parameter : store.parameters())
    result[parameter->name()] = parameter->grad();
  return result;
}

class RecordingHooks : public UnitHooks {
 public:
  void before_forward(const Module& unit) override { calls.push_back("forward " + unit.path()); }
  void after_forward(const Module& unit, const at::Tensor&) override {
    calls.push_back("forwarded " + unit.path());
  }
  bool observes_backward() const override { return observes; }
  void before_backward(const Module& unit, const at::Tensor& gradient) override {
    EXPECT_EQ(gradient.sizes(), at::IntArrayRef({6, 2, 12}));
    calls.push_back("backward " + unit.path());
  }
  void after_backward(const Module& unit) override { calls.push_back("done " + unit.path()); }

  bool observes = true;
  std::vector<std::string> calls;
};

TEST(UnitHooks, SeeForwardAndBackwardInOrder) {
  const auto model = make_gpt_model(tiny_config(), Rank{});
  ParamStore store(declared_parameters(*model), {});
  store.initialize(3);
  RecordingHooks hooks;
  const UnitHooksScope scope(*model, hooks);
  gradients_of(*model, store);
  const std::vector<std::string> forward{"forward embedding",
                                         "forwarded embedding",
                                         "forward decoder.layers.0",
                                         "forwarded decoder.layers.0",
                                         "forward decoder.layers.1",
                                         "forwarded decoder.layers.1",
                                         "forward decoder.final_layernorm",
                                         "forwarded decoder.final_layernorm"};
  std::vector<std::string> expected = forward;
  for (const char* call :
       {"backward decoder.final_layernorm", "done decoder.final_layernorm",
        "backward decoder.layers.1", "done decoder.layers.1", "backward decoder.layers.0",
        "done decoder.layers.0", "backward embedding", "done embedding"})
    expected.push_back(call);
  EXPECT_EQ(hooks.calls, expected);
  hooks.calls.clear();
  hooks.observes = false;
  gradients_of(*model, store);
  EXPECT_EQ(hooks.calls, forward);
}

/// Gives the weights of a unit their storage only while it runs.
class StorageOnDemand : public UnitHooks {
 public:
  StorageOnDemand(Model& model, ParamStore& store) : store_(store) {
    std::map<const Parameter*, const Module*> unit_of;
    for (Module* unit : model.units()) {
      for (const Parameter* parameter : declared_parameters(*unit)) unit_of[parameter] = unit;
    }
    for (std::size_t b = 0; b < store.buckets().size(); ++b) {
      const auto found = unit_of.find(store.buckets()[b].parameters.front());
      if (found == unit_of.end()) continue;  // the output layer is in no unit
      buckets_[found->second].push_back(b);
      stored_[b] = store.buckets()[b].value.clone();
      store.bind_values(b, {});
    }
  }

  void before_forward(const Module& unit) override { bind(unit); }
  void after_forward(const Module& unit, const at::Tensor&) override { release(unit); }
  bool observes_backward() const override { return true; }
  void before_backward(const Module& unit, const at::Tensor&) override { bind(unit); }
  void after_backward(const Module& unit) override { release(unit); }

  std::size_t num_buckets() const { return stored_.size(); }
  std::int64_t most_bound = 0;

 private:
  void bind(const Module& unit) {
    for (const std::size_t b : buckets_.at(&unit)) store_.bind_values(b, stored_.at(b).clone());
    most_bound = std::max(most_bound, ++num_bound_);
  }
  void release(const Module& unit) {
    for (const std::size_t b : buckets_.at(&unit)) store_.bind_values(b, {});
    --num_bound_;
  }

  ParamStore& store_;
  std::map<const Module*, std::vector<std::size_t>> buckets_;
  std::map<std::size_t, at::Tensor> stored_;
  std::int64_t num_bound_ = 0;
};

TEST(UnitHooks, WeightsNeedStorageOnlyInsideTheirUnit) {
  const auto whole = make_gpt_model(tiny_config(), Rank{});
  ParamStore whole_store(declared_parameters(*whole), {});
  whole_store.initialize(3);
  const auto expected = gradients_of(*whole, whole_store);

  const auto model = make_gpt_model(tiny_config(), Rank{});
  ParamStore store(declared_parameters(*model), {.unit_starts = unit_starts(*model)});
  store.initialize(3);
  StorageOnDemand hooks(*model, store);
  EXPECT_EQ(hooks.num_buckets(), 4u) << "embedding, two layers, final norm";
  EXPECT_EQ(store.buckets().size(), 5u);
  const UnitHooksScope scope(*model, hooks);
  const auto gradients = gradients_of(*model, store);
  EXPECT_EQ(hooks.most_bound, 1);
  ASSERT_EQ(gradients.size(), expected.size());
  for (const auto& [name, gradient] : expected)
    EXPECT_TRUE(at::equal(gradients.at(name), gradient)) << name;
}

}  // namespace
}  // namespace megatron
