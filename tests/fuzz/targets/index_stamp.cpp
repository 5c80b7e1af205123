// What an index cache was built from. The input is the stamp of an index with one array and one
// source.
#include "megatron/datasets/index_stamp.h"

#include <chrono>
#include <filesystem>

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {

void parse_index_stamp(std::string_view input) {
  static const std::string array = write_input("order.npy", "array"),
                           source = write_input("corpus.idx", "source");
  static const IndexSources sources{.files = {source}, .checksum = [] { return 7; }};
  static const std::string valid = [] {
    // A file whose time has settled, so that its contents need not be compared.
    std::filesystem::last_write_time(
        source, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    return make_index_stamp(sources, {array});
  }();
  require(!index_stamp_mismatch(valid, sources, {array}), "a valid stamp is refused");
  const auto mismatch = index_stamp_mismatch(std::string(input), sources, {array});
  require(!mismatch || !mismatch->empty(), "no reason is given");
}

}  // namespace megatron::fuzz
