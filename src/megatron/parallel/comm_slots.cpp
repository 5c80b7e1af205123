#include "megatron/parallel/comm_slots.h"

#include <utility>

#include "megatron/base/error.h"

namespace megatron {

class CommSlot final : public Comm {
 public:
  CommSlot(const std::shared_ptr<Comm>& comm, std::string name)
      : comm_(comm), name_(std::move(name)), ranks_(comm->ranks()), rank_(comm->rank()) {}
  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(ranks_.size()); }
  const std::string& name() const override { return name_; }
  const std::vector<std::int64_t>& ranks() const override { return ranks_; }
  void exchange(std::shared_ptr<Comm> comm) { comm_ = std::move(comm); }

 protected:
  PendingWork start(CommCall call) override {
    Comm& comm = group(call);
    return start_on(comm, std::move(call));
  }
  void run(CommCall call) override {
    Comm& comm = group(call);
    run_on(comm, std::move(call));
  }

 private:
  Comm& group(const CommCall& call) const {
    MEGATRON_CHECK(comm_ != nullptr, describe(call), " on ", name_, ", whose group has ended");
    return *comm_;
  }

  std::shared_ptr<Comm> comm_;  ///< null between two starts of the run
  const std::string name_;
  const std::vector<std::int64_t> ranks_;
  const std::int64_t rank_;
};

std::shared_ptr<Comm> CommSlots::connect(const std::string& name, std::shared_ptr<Comm> comm) {
  std::shared_ptr<CommSlot>& slot = slots_[{comm->ranks(), comm->rank(), name}];
  if (slot == nullptr) {
    slot = std::make_shared<CommSlot>(comm, name);
  } else {
    slot->exchange(std::move(comm));
  }
  return slot;
}

void CommSlots::disconnect() {
  std::erase_if(slots_, [](const auto& entry) { return entry.second.use_count() == 1; });
  for (const auto& [key, slot] : slots_) slot->exchange(nullptr);
  counters_->take();
  counters_->activities().switch_on(false);
  counters_->activities().take();
}

}  // namespace megatron
