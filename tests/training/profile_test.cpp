#include <ATen/ops/bmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/ops/op_scope.h"
#include "megatron/training/observability/profile/op_cost.h"
#include "megatron/training/observability/profile/op_recorder.h"
#include "megatron/training/observability/profile/profile_output.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using Kind = RecordedOp::Kind;

TEST(OpFlops, CountTwoPerMultiplyAdd) {
  const std::vector<TensorShape> gemm{{{8, 16}}, {{16, 32}}};
  EXPECT_EQ(op_flops("aten::mm", gemm), 2.0 * 8 * 16 * 32);
  const std::vector<TensorShape> sum{{{32}}, {{8, 16}}, {{16, 32}}};
  EXPECT_EQ(op_flops("aten::addmm", sum), 2.0 * 8 * 16 * 32);
  const std::vector<TensorShape> batched{{{3, 8, 16}}, {{3, 16, 32}}};
  EXPECT_EQ(op_flops("aten::bmm", batched), 2.0 * 3 * 8 * 16 * 32);
  const std::vector<TensorShape> attention{{{2, 4, 10, 64}}, {{2, 4, 20, 64}}, {{2, 4, 20, 64}}};
  EXPECT_EQ(op_flops("aten::_scaled_dot_product_flash_attention_for_cpu", attention),
            4.0 * 2 * 4 * 10 * 20 * 64);
  const std::vector<TensorShape> backward{{{2, 4, 10, 64}}, {{2, 4, 10, 64}}, {{2, 4, 20, 64}}};
  EXPECT_EQ(op_flops("aten::_scaled_dot_product_flash_attention_for_cpu_backward", backward),
            10.0 * 2 * 4 * 10 * 20 * 64);
  const std::vector<TensorShape> own{{{10, 2, 4, 64}}, {{20, 2, 2, 64}}, {{20, 2, 2, 32}}};
  EXPECT_EQ(op_flops("megatron::attention", own), 2.0 * 2 * 4 * 10 * 20 * (64 + 32));
  EXPECT_EQ(op_flops("megatron::causal_attention", own), 2.0 * 2 * 4 * (10 * 20 - 45) * (64 + 32));
  const std::vector<TensorShape> own_backward{{{10, 2, 4, 32}}, own[0], own[1], own[2]};
  EXPECT_EQ(op_flops("megatron::causal_attention_backward", own_backward),
            2.0 * 2 * 4 * (10 * 20 - 45) * (3 * 64 + 2 * 32));
}

TEST(OpFlops, OfOddShapesAreNone) {
  EXPECT_EQ(op_flops("aten::mm", {}), 0);
  EXPECT_EQ(op_flops("aten::addmm", std::vector<TensorShape>{{{1}}, {{2}}}), 0);
  EXPECT_EQ(op_flops("aten::add", std::vector<TensorShape>{{{8, 8}}, {{8, 8}}}), 0);
  EXPECT_FALSE(op_moves_data("aten::view"));
  EXPECT_TRUE(op_moves_data("aten::copy_"));
}

std::vector<RecordedOp> record(const auto& work) {
  OpRecorder recorder(c10::kCPU);
  work(recorder);
  return recorder.take();
}

const RecordedOp& find(const std::vector<RecordedOp>& ops, const std::string& name) {
  const auto found =
      std::ranges::find_if(ops, [&](const RecordedOp& op) { return op.name == name; });
  EXPECT_NE(found, ops.end()) << name;
  return *found;
}

TEST(OpRecorder, SeesOperatorsWithCostsAndBackward) {
  const auto ops = record([](OpRecorder& recorder) {
    recorder.begin("forward", Kind::module);
    const at::Tensor weight = at::ones({16, 32}).set_requires_grad(true);
    const at::Tensor y = at::mm(at::ones({8, 16}), weight);
    recorder.end("forward");
    y.backward(at::ones({8, 32}));
  });
  const RecordedOp& gemm = find(ops, "aten::mm");
  EXPECT_EQ(gemm.flops, 2.0 * 8 * 16 * 32);
  EXPECT_EQ(gemm.bytes, 4.0 * (8 * 16 + 16 * 32 + 8 * 32));
  EXPECT_EQ(gemm.shapes, "[8, 16] [16, 32]");
  EXPECT_EQ(find(ops, "MmBackward0").kind, Kind::backward);
  EXPECT_LE(gemm.duration_ns, find(ops, "forward").duration_ns);
}

TEST(OpRecorder, CountsBytesAndTimeOnce) {
  const auto ops = record([](OpRecorder&) {
    at::linear(at::ones({4, 8, 16}), at::ones({32, 16}));
  });
  double flops = 0;
  std::int64_t self = 0, outermost = 0;
  for (const RecordedOp& op : ops) {
    flops += op.flops;
    self += op.self_ns;
    EXPECT_LE(op.self_ns, op.duration_ns);
    if (op.name == "aten::linear" || op.name == "aten::ones") outermost += op.duration_ns;
  }
  EXPECT_EQ(flops, 2.0 * 4 * 8 * 16 * 32);
  EXPECT_EQ(self, outermost) << "own times add up to the time of what was called";
  EXPECT_EQ(find(ops, "aten::linear").bytes, 0);
}

TEST(OpRecorder, SeesKernelsOfOurOwn) {
  const auto ops = record([](OpRecorder&) {
    norm_rows(at::ones({4, 8}), nullptr, {.weight = at::ones({8})}, at::kFloat);
  });
  const RecordedOp& norm = find(ops, "megatron::norm_rows");
  EXPECT_EQ(norm.bytes, 4.0 * (4 * 8 + 8 + 4 * 8 + 4)) << "x, weight, y and a statistic a row";
  EXPECT_EQ(norm.kind, Kind::op);
}

TEST(OpRecorder, TakesTheCostThatAKernelGives) {
  const auto ops = record([](OpRecorder&) {
    const at::Tensor x = at::ones({4, 8});
    const OpScope scope("megatron::own_kernel", {x, x}, {.flops = 123, .bytes = 45});
    at::ones({4, 8});
  });
  const RecordedOp& attention = find(ops, "megatron::own_kernel");
  EXPECT_EQ(attention.flops, 123);
  EXPECT_EQ(attention.bytes, 45) << "whatever it called";
  EXPECT_EQ(attention.shapes, "[4, 8] [4, 8]");
}

TEST(OpRecorder, EndsWhatWasLeftOpenInside) {
  const auto ops = record([](OpRecorder& recorder) {
    recorder.begin("outer", Kind::phase);
    recorder.begin("inner", Kind::module);
    recorder.end("nobody");
    recorder.end("outer");
  });
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].name, "inner");
}

TEST(OpRecorder, LeavesNothingBehind) {
  { const OpRecorder recorder(c10::kCPU); }
  const auto ops = record([](OpRecorder&) {});
  at::ones({2});
  EXPECT_TRUE(ops.empty());
}

std::vector<RecordedOp> example() {
  return {
      {.name = "aten::mm",
       .kind = Kind::op,
       .start_ns = 1000,
       .duration_ns = 4000,
       .self_ns = 4000,
       .bytes = 100,
       .flops = 2000,
       .shapes = "[1]"},
      {.name = "CppNode<megatron::(anonymous namespace)::Linear>",
       .kind = Kind::backward,
       .start_ns = 6000,
       .duration_ns = 1000,
       .self_ns = 1000},
      {.name = "step", .kind = Kind::phase, .start_ns = 0, .duration_ns = 10000, .self_ns = 5000}};
}

TEST(ProfileTable, GivesTheFractionOfRoofline) {
  const std::string table =
      profile_table({.first_iteration = 11,
                     .num_steps = 1,
                     .peak = {.flops_per_second = 1e9, .bytes_per_second = 1e9}},
                    example());
  EXPECT_THAT(table, HasSubstr("profile of iterations 11 to 11: 0.01 ms a step"));
  EXPECT_THAT(table, HasSubstr("50% compute")) << "2000 FLOPs need 2 of the 4 microseconds";
  EXPECT_THAT(table, HasSubstr("\n  Linear "));
  EXPECT_THAT(table, HasSubstr(" 40.0%")) << "of the step";
}

TEST(ProfileTable, SaysWhatCameFromACache) {
  const std::vector<RecordedOp> ops{{.name = "aten::copy_",
                                     .kind = Kind::op,
                                     .duration_ns = 4000,
                                     .self_ns = 4000,
                                     .bytes = 6000},
                                    {.name = "aten::add_",
                                     .kind = Kind::op,
                                     .duration_ns = 4000,
                                     .self_ns = 4000,
                                     .bytes = 3000}};
  const std::string table =
      profile_table({.num_steps = 2,
                     .peak = {.flops_per_second = 1e9, .bytes_per_second = 1e9},
                     .memory = {.tensors = 30, .system = 4}},
                    ops);
  EXPECT_THAT(table, HasSubstr("in cache: 1.5x memory"));
  EXPECT_THAT(table, HasSubstr("75% memory"));
  EXPECT_THAT(table, HasSubstr("per step 1.0 operators ran and 15.0 tensors were allocated, 2.0 of "
                               "them with new memory"));
}

TEST(TraceJson, IsAListOfCompleteEvents) {
  const TraceTrack track = trace_track(example(), 3);
  const Json trace = Json::parse(trace_json({&track, 1}));
  const Json& event = trace.at("traceEvents").at(1);
  EXPECT_EQ(event.at("ph"), "X");
  EXPECT_EQ(event.at("ts"), 1.0);
  EXPECT_EQ(event.at("dur"), 4.0);
  EXPECT_EQ(event.at("pid"), 3);
  EXPECT_EQ(event.at("args"), Json({{"bytes", 100.0}, {"FLOPs", 2000.0}, {"shapes", "[1]"}}));
  EXPECT_EQ(trace.at("traceEvents").size(), 4u);
}

}  // namespace
}  // namespace megatron
