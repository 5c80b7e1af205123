// A save that a thread writes while training goes on (--async-save). The run stops only while the
// state is copied to host memory. One save is under way at a time.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "megatron/checkpoint/checkpoint_writer.h"
#include "megatron/checkpoint/host_snapshot.h"

namespace megatron {

struct SaveRequest;

class BackgroundSave {
 public:
  BackgroundSave() = default;
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  /// A save that was not completed is given up and leaves nothing behind.
  ~BackgroundSave();

  /// Copies the state and starts the thread. No save may be under way. UserError like
  /// save_checkpoint(). Collective over request.world.
  void start(const std::filesystem::path& root, const SaveRequest& request);
  bool is_under_way() const { return write_ != nullptr; }
  /// Returns whether all ranks have written their pieces. Collective over the world.
  bool is_written() const;
  /// Waits for the thread and completes the checkpoint; no save is under way then. UserError like
  /// save_checkpoint(). Collective over the world.
  void complete();

 private:
  void join();

  HostSnapshot snapshot_;
  std::unique_ptr<CheckpointWrite> write_;
  std::string iteration_;
  Axis world_;
  c10::Device device_ = c10::kCPU;
  std::thread thread_;
  std::atomic<bool> has_ended_ = false;
};

}  // namespace megatron
