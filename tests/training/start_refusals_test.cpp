// Checks what stops a run before its first step although its flags are right: the environment,
// folders, and checkpoints that do not fit. Also checks warnings of such a start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "megatron/config/memory_config.h"
#include "megatron/training/run/open_offload_store.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

class StartRefusals : public testing::Test {
 protected:
  std::string folder(const std::string& name) const { return (temporary_ / name).string(); }

  /// Sets up a run and returns what it prints.
  static std::string start(const Words& more) {
    std::ostringstream out;
    set_up(read_run(small_run::flags(more)), out);
    return out.str();
  }
  static std::string refusal(const Words& more) {
    return message_of([&] { start(more); });
  }

  const TemporaryFolder temporary_;
};

TEST_F(StartRefusals, DeterminismNeedsItsEnvironment) {
  ASSERT_EQ(std::getenv("MKL_CBWR"), nullptr);
  ::setenv("MKL_CBWR", "AVX2", 1);
  const std::string message = refusal({"--deterministic-mode"});
  ::unsetenv("MKL_CBWR");
  EXPECT_THAT(message, HasSubstr("--deterministic-mode: the environment has MKL_CBWR=AVX2: without "
                                 "STRICT, GEMM results depend on the number of threads\n  fix: "
                                 "unset it, or add ,STRICT"));
}

TEST_F(StartRefusals, OnACpuAPlanThatOffloadsNeedsAFolder) {
  EXPECT_THAT(refusal({"--activation-plan", "offload*2"}),
              HasSubstr("--activation-plan with offload: on a CPU needs another memory than its "
                        "own\n  fix: add --offload-folder DIR, a folder on a local disk"));
}

// Launch scripts that are tried on a laptop carry the flags.
TEST(StartNotes, OnACpuTheMemoryOfTheHostIsThatOfTheRun) {
  const auto note = [](const Words& flags) {
    MemoryConfig memory = *read_run(small_run::flags(flags)).options.settings.memory;
    std::ostringstream out;
    leave_in_host_memory(memory, c10::kCPU, out);
    check_offload_place(memory, c10::kCPU);
    return out.str();
  };
  const std::string text = ": without effect on a CPU, where the memory of the host";
  for (const Words& flags :
       std::vector<Words>{{"--cpu-offloading"},
                          {"--cpu-offloading-num-layers", "1"},
                          {"--fine-grained-activation-offloading", "--offload-modules", "mlp"},
                          {"--optimizer-cpu-offload"}})
    EXPECT_THAT(note(flags), HasSubstr("note: " + flags[0] + text));
  EXPECT_EQ(note({}), "");
  EXPECT_THAT(note({"--optimizer-cpu-offload", "--cpu-offloading"}),
              HasSubstr("note: --cpu-offloading, --optimizer-cpu-offload" + text));
}

TEST_F(StartRefusals, AnOffloadFolderIsTriedBeforeAnythingIsBuilt) {
  std::ofstream(folder("file")) << "x";
  const auto with = [&](const std::string& name) {
    return refusal({"--cpu-offloading", "--offload-folder", name});
  };
  const std::string the = "the offload folder ";
  EXPECT_THAT(with("/proc"), HasSubstr("the offload folder /proc: no file can be created in it: No "
                                       "such file or directory\n  fix: name a folder on a local "
                                       "disk"));
  EXPECT_THAT(with(folder("file")),
              HasSubstr(the + folder("file") +
                        ": is a file, not a folder\n  fix: name a folder on a local disk"));
  EXPECT_THAT(with(folder("missing")),
              HasSubstr(the + folder("missing") + ": cannot be used: No such file or directory\n" +
                        "  fix: create it, or name another folder"));
  EXPECT_EQ(refusal({"--cpu-offloading", "--offload-folder", folder("")}), "no error");
}

TEST_F(StartRefusals, AGpuOffloadsToItsHost) {
  MemoryConfig memory;
  memory.offload.cpu_offloading = true;
  memory.offload.offload_folder = folder("");
  EXPECT_THAT(message_of([&] { check_offload_place(memory, c10::kCUDA); }),
              HasSubstr("--offload-folder: is for CPUs: a GPU offloads to the memory of its host"));
}

TEST_F(StartRefusals, AVocabularyHoldsTheTokenizersIds) {
  EXPECT_THAT(refusal({"--tokenizer-type", "ByteTokenizer", "--vocab-size", "200"}),
              HasSubstr("the tokenizer has 257 ids: the model's vocabulary has 200\n  fix: leave "
                        "--vocab-size out, or make it as large as the tokenizer's"));
}

TEST_F(StartRefusals, ATokenizerOfPlainIdsReadsNoFlagsOfOthers) {
  Words words = small_run::flags({"--tiktoken-pattern", "v2"});
  std::erase(words, "--tokenizer-type");
  std::erase(words, "NullTokenizer");
  std::ostringstream out;
  EXPECT_THAT(message_of([&] { set_up(read_run(words), out); }),
              HasSubstr("--tiktoken-pattern has an effect only with TikTokenizer: the tokenizer is "
                        "a NullTokenizer"));
}

// A script names one folder to load and to save, which its first start finds empty.
TEST_F(StartRefusals, ANewRouterNeedsAGradientAlsoWhereAFolderToLoadIsNamed) {
  const Words flags{"--num-experts", "4",      "--moe-router-topk", "1", "--load",
                    folder("new"),   "--save", folder("new")};
  EXPECT_THAT(refusal(flags), HasSubstr("so that the router gets no gradient\n  fix: add "
                                        "--moe-router-pre-softmax"));
}

TEST_F(StartRefusals, ACheckpointThatMustBeThereIsNamed) {
  EXPECT_THAT(refusal({"--load", folder("nothing"), "--exit-on-missing-checkpoint"}),
              HasSubstr("--load " + folder("nothing") +
                        ": does not exist, and --exit-on-missing-checkpoint is given"));
  EXPECT_THAT(refusal({"--load", folder("nowhere"), "--save", folder("new"), "--moe-use-upcycling",
                       "--num-experts", "8"}),
              AllOf(HasSubstr("--load " + folder("nowhere") +
                              ": does not exist, and --moe-use-upcycling is given"),
                    HasSubstr("fix: check the path")));
  std::ofstream(folder("file")) << "x";
  EXPECT_THAT(refusal({"--load", folder("file")}), HasSubstr(folder("file")));
}

TEST_F(StartRefusals, UpcyclingWritesNothingThatItCannotFinish) {
  small_run::run({"--save", folder("dense"), "--train-iters", "1", "--lr-warmup-iters", "0"});
  const Words words{"--load", folder("dense"),      "--save", folder("new"), "--num-experts",
                    "8",      "--moe-use-upcycling"};
  Words odd = words;
  odd.insert(odd.end(), {"--moe-upcycling-granularity", "3"});
  EXPECT_THAT(refusal(odd), AllOf(HasSubstr("--moe-use-upcycling: " + folder("dense")),
                                  HasSubstr("fix: use a divisor of both, such as 8")));
  EXPECT_FALSE(std::filesystem::exists(folder("new") + "/release"));
  Words taken = words;
  taken[3] = folder("dense");
  EXPECT_THAT(refusal(taken), HasSubstr("holds a checkpoint already, and --moe-use-upcycling is "
                                        "given\n  fix: leave --moe-use-upcycling out and give"));
}

TEST_F(StartRefusals, OtherRotaryFrequenciesThanTheLoadedModelsAreWarnedOf) {
  const Words rope{"--position-embedding-type", "rope", "--train-iters", "1",
                   "--lr-warmup-iters",         "0"};
  const auto with = [&](const Words& more) {
    Words words = rope;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  small_run::run(with({"--save", folder("rope")}));
  const Words tune{"--load", folder("rope"), "--finetune"};
  const auto tuned = [&](Words more) {
    more.insert(more.end(), tune.begin(), tune.end());
    return start(with(more));
  };
  const std::string trained = "WARNING: the loaded model was trained with other rotary frequencies";
  EXPECT_THAT(tuned({"--rotary-base", "500"}),
              HasSubstr(trained + ": rotary_base 10000 there and 500 now\n"));
  EXPECT_THAT(tuned({"--use-rope-scaling"}),
              AllOf(HasSubstr(trained), HasSubstr("; the scaling assumes sequences of 8192 tokens "
                                                  "before, the checkpoint names 16 "
                                                  "(--rope-original-max-position-embeddings 16)")));
}

TEST_F(StartRefusals, AnotherBudgetIsPlannedForAnew) {
  const auto with = [](const char* budget, Words more) {
    more.insert(more.end(), {"--micro-batch-size", "2", "--train-iters", "1", "--lr-warmup-iters",
                             "0", "--memory-budget", budget});
    return more;
  };
  const std::string planning = "planning for a memory budget of";
  EXPECT_THAT(small_run::run(with("20GB", {"--save", folder("plan")})).log, HasSubstr(planning));
  EXPECT_THAT(start(with("20GB", {"--load", folder("plan")})),
              HasSubstr("memory budget: the plan of the checkpoint, micro-batch 2, none*2"));
  EXPECT_THAT(start(with("21GB", {"--load", folder("plan")})), HasSubstr(planning));
}

}  // namespace
}  // namespace megatron
