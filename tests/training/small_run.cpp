#include "training/small_run.h"

#include <sstream>

namespace megatron::small_run {

std::vector<std::string> flags(const std::vector<std::string>& more) {
  std::vector<std::string> all{"gpt",
                               "--num-layers",
                               "2",
                               "--hidden-size",
                               "32",
                               "--num-attention-heads",
                               "2",
                               "--seq-length",
                               "16",
                               "--vocab-size",
                               "64",
                               "--tokenizer-type",
                               "NullTokenizer",
                               "--mock-data",
                               "--micro-batch-size",
                               "2",
                               "--global-batch-size",
                               "4",
                               "--train-iters",
                               "8",
                               "--lr",
                               "1e-2",
                               "--lr-warmup-iters",
                               "2",
                               "--eval-interval",
                               "2",
                               "--eval-iters",
                               "1",
                               "--log-interval",
                               "1",
                               "--num-workers",
                               "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Outcome run(const std::vector<std::string>& more) {
  std::ostringstream out;
  Outcome outcome{.code = 0, .log = {}, .trainer = set_up(read_run(flags(more)), out)};
  outcome.code = train(outcome.trainer, out);
  outcome.log = out.str();
  return outcome;
}

}  // namespace megatron::small_run
