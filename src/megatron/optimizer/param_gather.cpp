#include "megatron/optimizer/param_gather.h"

namespace megatron {

ParamGather::ParamGather(const ParamStore& store, const std::vector<at::Tensor>& main)
    : store_(store), fp32_values_(store.buckets().size()), works_(store.buckets().size()) {
  for (std::size_t b = 0; b < store.buckets().size(); ++b) {
    const ParamBucket& bucket = store.buckets()[b];
    if (bucket.is_precise && !main.empty()) fp32_values_[b] = main[b];
    for (const Parameter* parameter : bucket.parameters) bucket_of_[parameter] = b;
  }
}

ParamGather::~ParamGather() {
  for (Parameter* parameter : store_.parameters()) parameter->set_read_hook(nullptr);
}

void ParamGather::start() {
  finish();
  for (std::size_t b = works_.size(); b-- > 0;) {
    const ParamBucket& bucket = store_.buckets()[b];
    if (!bucket.is_sharded() || bucket.shards_values()) continue;
    const at::Tensor& whole = fp32_values_[b].defined() ? fp32_values_[b] : bucket.value;
    works_[b] =
        bucket.data_parallel->shard.comm->start_all_gather(whole, bucket.own(whole), "weights");
    for (Parameter* parameter : bucket.parameters) parameter->set_read_hook(this);
  }
  if (!store_.data_parallel().overlaps_param_gather) finish();
}

void ParamGather::finish() {
  for (std::size_t b = works_.size(); b-- > 0;) finish(b);
}

void ParamGather::finish(std::size_t bucket) {
  if (works_[bucket] == nullptr) return;
  works_[bucket]->wait();
  works_[bucket].reset();
  const ParamBucket& done = store_.buckets()[bucket];
  if (fp32_values_[bucket].defined()) at::Tensor(done.value).copy_(fp32_values_[bucket]);
  for (Parameter* parameter : done.parameters) parameter->set_read_hook(nullptr);
}

void ParamGather::open(const Parameter& parameter) { finish(bucket_of_.at(&parameter)); }

}  // namespace megatron
