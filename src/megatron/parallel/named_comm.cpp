#include "megatron/parallel/named_comm.h"

#include <utility>

namespace megatron {
namespace {

class NamedComm final : public Comm {
 public:
  NamedComm(std::shared_ptr<Comm> comm, std::string name)
      : comm_(std::move(comm)), name_(std::move(name)) {}
  std::int64_t rank() const override { return comm_->rank(); }
  std::int64_t size() const override { return comm_->size(); }
  const std::string& name() const override { return name_; }
  const std::vector<std::int64_t>& ranks() const override { return comm_->ranks(); }

 protected:
  PendingWork start(CommCall call) override { return start_on(*comm_, std::move(call)); }
  void run(CommCall call) override { run_on(*comm_, std::move(call)); }

 private:
  std::shared_ptr<Comm> comm_;
  std::string name_;
};

}  // namespace

std::shared_ptr<Comm> with_name(const std::shared_ptr<Comm>& comm, const std::string& name) {
  if (comm->name() == name) return comm;
  return std::make_shared<NamedComm>(comm, name);
}

}  // namespace megatron
