// Serves requests with replicas of a model, whose first ranks have an axis in common:
//
//   AsyncEngine engine(model, {}, {.axis = rank.model});
//   if (!engine.is_leader()) return engine.wait();
//   ReplicaSet replicas(engine, {.axis = rank.dp});
//   if (!replicas.is_leader()) return replicas.wait();
//   UpdateStream text = replicas.stream({.prompt = ids});
#pragma once

#include <map>
#include <memory>

#include "megatron/inference/request_server.h"
#include "megatron/inference/router.h"

namespace megatron {

/// The leader routes requests to the replicas, which step and change their weights each for itself,
/// and gathers their news. Collective calls on the axis belong to its thread.
class ReplicaSet final : public RequestServer {
 public:
  /// `own` is the replica of this rank, which must outlive this object. `scheduler` are its
  /// options. Collective over the axis.
  ReplicaSet(RequestServer& own, const ServingRanks& replicas,
             const SchedulerOptions& scheduler = {});
  ~ReplicaSet() override;

  EngineLoad load() const override { return own_.load(); }

 private:
  struct Outbox;
  void route(ServingCommand& command) override;
  void apply(ServingCommand command) override;
  bool step() override;

  RequestServer& own_;
  RequestRouter router_;
  std::map<RequestId, RequestRouter::Route> routes_;  ///< of all requests; on the leader
  std::map<RequestId, RequestId> own_numbers_;        ///< in own_, of those that it serves
  const std::shared_ptr<Outbox> outbox_;  ///< its news that the leader does not have yet
};

}  // namespace megatron
