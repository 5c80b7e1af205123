#include "megatron/training/observability/out_of_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "megatron/config/run_command.h"
#include "megatron/training/observability/tensor_memory.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(OutOfMemoryError, KnowsTheWordsOfTheLibraries) {
  EXPECT_TRUE(is_out_of_memory_message(
      "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB"));
  EXPECT_TRUE(is_out_of_memory_message(
      "DefaultCPUAllocator: not enough memory: you tried to allocate 123 bytes."));
  EXPECT_TRUE(is_out_of_memory_message(
      "DefaultCPUAllocator: can't allocate memory: you tried to allocate 123 "
      "bytes. Error code 12"));
  EXPECT_FALSE(is_out_of_memory_message("shape '[3]' is invalid for input of size 4"));
}

TEST(OutOfMemoryError, LimitsAreThoseOfTheSystem) {
  const MemoryLimits limits = memory_limits(c10::kCPU);
  EXPECT_GT(limits.machine, 1e8);
  EXPECT_GT(limits.available, 0);
  EXPECT_LE(limits.available, limits.machine);
  EXPECT_EQ(limits_text({.address_space = 19.5 * (1 << 30),
                         .reserved_addresses = 19.25 * (1 << 30),
                         .resident = 18.0 * (1 << 30),
                         .machine = 32.0 * (1 << 30),
                         .available = 512.0 * (1 << 20)}),
            "limits: address space 19.50 GiB (ulimit -v; reserved 19.25 GiB, resident 18.00 GiB), "
            "machine 32.00 GiB of which 512.0 MiB are available");
}

std::string message_of(const Trainer& trainer, const auto& fails) {
  try {
    try {
      fails();
    } catch (...) {
      rethrow_with_memory_report(trainer.plan, trainer.state);
    }
  } catch (...) {
    const CommandFailure failure = command_failure(std::current_exception());
    EXPECT_EQ(failure.code, failure.text.starts_with("error: out of memory: ") ? 2 : 1);
    return failure.text;
  }
  return "";
}

TEST(OutOfMemoryError, SaysWhatWasAskedWhatIsHeldAndWhatHelps) {
  use_caching_cpu_allocator();
  std::ostringstream out;
  const Trainer trainer = set_up(read_run(small_run::flags({})), out);
  at::empty({1 << 20}, at::kByte);  // as large as a step of this run
  const auto all =
      AllOf(HasSubstr("this rank holds: weights "), HasSubstr("gradients "),
            HasSubstr("optimizer state "),
            HasSubstr("theoretical memory of a rank: weights and optimizer"), HasSubstr("limits: "),
            HasSubstr("machine "), HasSubstr("fix, the cheapest first, with predicted effects:"),
            HasSubstr("\n    --micro-batch-size 1: "), HasSubstr("iB less ("));
  EXPECT_THAT(message_of(trainer, [] { at::empty({std::int64_t{1} << 50}); }),
              AllOf(HasSubstr("error: out of memory: "), HasSubstr("4503599627370496 bytes"), all));
  EXPECT_THAT(message_of(trainer, [] { throw std::bad_alloc(); }),
              AllOf(HasSubstr("error: out of memory: "), all));
  EXPECT_THAT(
      message_of(trainer, [] { throw std::runtime_error("rank 3 failed: error: out of memory"); }),
      "internal error: rank 3 failed: error: out of memory");
}

/// The report includes the memory of the failed step, although it is freed by the time the message
/// is built.
TEST(OutOfMemoryError, CountsTheTensorsOfTheStepThatFailed) {
  class Failing : public MicrobatchSource {
   public:
    Microbatch next() override {
      const at::Tensor held = at::zeros({96 << 20}, at::kByte);
      throw std::bad_alloc();
    }
  };
  use_caching_cpu_allocator();
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags({})), out);
  trainer.data.train = std::make_unique<Failing>();
  std::string message;
  try {
    train(trainer, out);
  } catch (const OutOfMemoryError& error) {
    message = error.what();
  }
  const std::string words = "activations and other tensors at the peak ";
  const auto start = message.find(words);
  ASSERT_NE(start, std::string::npos) << message;
  const double mebibytes = std::stod(message.substr(start + words.size()));
  EXPECT_GE(mebibytes, 96) << message;
  EXPECT_LT(mebibytes, 160) << message;
}

}  // namespace
}  // namespace megatron
