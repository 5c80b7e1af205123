// The documents that preprocess-data kept before a kill. The first byte of the input chooses what
// is compared, the second one how much of the file counts, and the rest is the file.
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/datasets/cleaning/duplicate_finder.h"

namespace megatron::fuzz {

void parse_duplicate_journal(std::string_view input) {
  if (input.size() < 2) return;
  const auto kind = static_cast<unsigned char>(input[0]),
             cut = static_cast<unsigned char>(input[1]);
  const std::string_view file = input.substr(2);
  DuplicateOptions options{.exact = (kind & 1) != 0};
  if ((kind & 2) != 0)
    options.near = MinHashOptions{.bands = 1 + (kind >> 4), .rows = 1 + ((kind >> 2) & 3)};
  options.threshold = (kind & 1) != 0 ? 0.5 : 0;
  const std::string path = write_input("data.partial.kept", file);
  const std::uint64_t resumed = cut == 0 ? file.size() + 8 : file.size() - file.size() % cut;
  DuplicateFinder finder(options, path, resumed);
  DuplicateKeys keys{.text_hash = {1, 2}, .bands = {}, .signature = {}};
  if (options.near) {
    const auto bands = static_cast<std::size_t>(options.near->bands),
               rows = static_cast<std::size_t>(options.near->rows);
    keys.bands.assign(bands, 3);
    if (options.compares_signatures()) keys.signature.assign(bands * rows, 4);
  }
  if (!finder.find(keys)) finder.add(keys);
  require(finder.find(keys).has_value() == (options.exact || options.near.has_value()),
          "a document that was added is not found");
  require(finder.checkpoint() >= resumed, "the journal became shorter");
}

}  // namespace megatron::fuzz
