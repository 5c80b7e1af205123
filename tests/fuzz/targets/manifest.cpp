// The manifest of a checkpoint. The input is the file; its checksum is put right, because no fuzzer
// would find it.
#include "megatron/checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/checksum.h"
#include "megatron/base/json.h"

namespace megatron::fuzz {

void parse_manifest(std::string_view input) {
  Json json = parse_json(input, "manifest.json");
  if (json.is_object()) {
    json.erase("xxh3");
    json["xxh3"] = checksum_hex(checksum(json.dump()));
  }
  const Manifest manifest = megatron::parse_manifest(json.dump(), "manifest.json");
  tiling_error(manifest);
}

}  // namespace megatron::fuzz
