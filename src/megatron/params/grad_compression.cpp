#include "megatron/params/grad_compression.h"

#include "megatron/base/error.h"
#include "megatron/params/continuation_work.h"

namespace megatron {
namespace {

class Bf16Compression : public GradCompression {
 public:
  PendingWork start(const ParamBucket& bucket, const StartReduce& start_reduce) override {
    if (bucket.grad.element_size() == 2) return start_reduce(bucket.grad);
    const at::Tensor sent = bucket.grad.to(at::kBFloat16);
    return and_then(start_reduce(sent),
                    [sent, &bucket] { bucket.own(bucket.grad).copy_(bucket.own(sent)); });
  }
};

}  // namespace

std::unique_ptr<GradCompression> make_grad_compression(const DataParallelOptions& options) {
  if (options.compression == "none") return nullptr;
  if (options.compression == "bf16") return std::make_unique<Bf16Compression>();
  if (options.compression == "low-rank") return make_low_rank_compression(options);
  throw UserError({"--ddp-grad-compression", options.compression, "use none, bf16 or low-rank"});
}

}  // namespace megatron
