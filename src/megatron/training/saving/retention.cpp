#include "megatron/training/saving/retention.h"

#include <ostream>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/pending_folder.h"

namespace megatron {

void remove_checkpoint(const std::filesystem::path& root, std::int64_t iteration,
                       std::ostream& out) {
  const fs::path folder = root / iteration_folder(iteration);
  if (fs::is_symlink(folder)) {
    out << "  skipping the removal of " << folder.string() << ": it is a symbolic link"
        << std::endl;
    return;
  }
  if (!fs::exists(folder)) return;
  try {
    remove_folder_atomically(folder);
  } catch (const UserError& error) {
    out << "WARNING: an old checkpoint could not be removed, training continues: " << error.what()
        << std::endl;
    return;
  }
  out << "  removed the checkpoint of iteration " << iteration << " from " << root.string()
      << std::endl;
}

void remove_unless_multiple(const std::filesystem::path& root, std::int64_t previous,
                            std::int64_t current, std::int64_t interval, std::ostream& out) {
  if (previous > 0 && previous != current && previous % interval != 0)
    remove_checkpoint(root, previous, out);
}

void remove_all_but(const std::filesystem::path& root, std::int64_t newest, std::ostream& out) {
  for (const std::int64_t iteration : committed_iterations(root)) {
    if (iteration != newest) remove_checkpoint(root, iteration, out);
  }
}

}  // namespace megatron
