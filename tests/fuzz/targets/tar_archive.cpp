// Image-text shards. The input is a tar archive.
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/storage/local_range_reader.h"
#include "megatron/datasets/webdataset/tar_reader.h"
#include "megatron/datasets/webdataset/web_dataset.h"

namespace megatron::fuzz {

void parse_tar_archive(std::string_view input) {
  const std::string path = write_input("shard.tar", input);
  const LocalRangeReader file(path);
  TarReader reader(file);
  std::uint64_t last = 0;
  while (const auto member = reader.next()) {
    require(member->data_offset + member->size <= input.size(), "a file ends behind the archive");
    require(reader.offset() > last, "the reader stays at a header");
    last = reader.offset();
  }
  std::vector<std::string> warnings;
  const WebDataset dataset({path}, {.cache = false}, warnings);
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    for (const WebField& field : dataset.sample(i).fields)
      require(field.size == field.bytes.size(), "a field has another size than its bytes");
  }
}

}  // namespace megatron::fuzz
