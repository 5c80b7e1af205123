#include "megatron/training/saving/save_folder.h"

#include <ostream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/stale_temporaries.h"

namespace megatron {

SaveFolder::SaveFolder(std::filesystem::path path, FileSystem& files, bool is_leader)
    : path_(std::move(path)), files_(files) {
  if (!is_leader) return;
  if (fs::exists(path_) && !fs::is_directory(path_))
    throw UserError({"--save " + path_.string(), "is a file", "give a folder"});
  open();
}

void SaveFolder::open() {
  megatron::create_directories(path_, files_);
  lock_.reset();
  lock_ = std::make_unique<FolderLock>(path_);
  const fs::path probe = path_ / kWriteProbe;
  write_file_atomically(probe, "x", files_);
  remove_tree(probe, files_);
}

const FolderLock* SaveFolder::lock(std::ostream& err) {
  if (lock_ == nullptr) return nullptr;
  if (!lock_->is_in_place()) {
    err << "WARNING: " << path_.string() << " was deleted during the run; it is created again"
        << std::endl;
    open();
  }
  return lock_.get();
}

}  // namespace megatron
