// The manifest of a checkpoint. The input is the file.
#include "megatron/checkpoint/manifest.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_manifest(std::string_view input) {
  const Manifest manifest = megatron::parse_manifest(std::string(input), "manifest.json");
  tiling_error(manifest);
}

}  // namespace megatron::fuzz
