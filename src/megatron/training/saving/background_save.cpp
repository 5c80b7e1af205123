#include "megatron/training/saving/background_save.h"

#include <sys/resource.h>

#include <utility>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

/// On Linux a thread has a niceness of its own, so that training goes first on busy CPUs.
constexpr int kNiceness = 10;

}  // namespace

BackgroundSave::~BackgroundSave() {
  if (write_) write_->give_up();
  join();
}

void BackgroundSave::start(const std::filesystem::path& root, const SaveRequest& request) {
  MEGATRON_CHECK(!is_under_way(), "a save is under way");
  std::unique_ptr<CheckpointWrite> write = begin_checkpoint(root, request, &snapshot_);
  iteration_ = std::to_string(request.progress.iteration);
  world_ = request.world;
  device_ = request.weights->device();
  has_ended_ = false;
  write_ = std::move(write);
  thread_ = std::thread([this] {
    setpriority(PRIO_PROCESS, 0, kNiceness);
    write_->write();
    has_ended_ = true;
  });
}

bool BackgroundSave::is_written() const {
  return all_reduce_max({world_, device_}, {has_ended_ ? 0.0 : 1.0}, "unwritten checkpoints")[0] ==
         0;
}

void BackgroundSave::complete() {
  join();
  const std::unique_ptr<CheckpointWrite> write = std::exchange(write_, nullptr);
  write->commit(iteration_);
}

void BackgroundSave::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace megatron
