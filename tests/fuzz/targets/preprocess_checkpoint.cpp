// What preprocess-data writes so that it can continue after a kill. The input is the file.
#include "megatron/datasets/preprocess_checkpoint.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_preprocess_checkpoint(std::string_view input) {
  const std::string path = write_input("data.partial.json", input);
  PreprocessCheckpointFile::load(path.substr(0, path.size() - std::string(".partial.json").size()),
                                 "job");
}

}  // namespace megatron::fuzz
