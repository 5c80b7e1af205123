#include "megatron/params/grad_compression.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/philox.h"
#include "megatron/params/init.h"

namespace megatron {
namespace {

/// Work that runs a function after it has waited for other work.
class ContinuationWork : public Work {
 public:
  ContinuationWork(PendingWork first, std::function<void()> then)
      : first_(std::move(first)), then_(std::move(then)) {}
  void wait() override {
    first_->wait();
    if (then_) std::exchange(then_, nullptr)();
  }

 private:
  PendingWork first_;
  std::function<void()> then_;
};

class Bf16Compression : public GradCompression {
 public:
  PendingWork start(const ParamBucket& bucket, const StartReduce& start_reduce) override {
    if (bucket.grad.element_size() == 2) return start_reduce(bucket.grad);
    const at::Tensor sent = bucket.grad.to(at::kBFloat16);
    return and_then(start_reduce(sent),
                    [sent, &bucket] { bucket.own(bucket.grad).copy_(bucket.own(sent)); });
  }
};

/// The state of one gradient matrix [n, m]: the factor Q [m, r] and the error of the previous step.
struct Matrix {
  at::Tensor grad, factor, error;
  at::Tensor next_factor = {}, next_error = {};  ///< Set by the last sum, used from commit() on.
  at::Tensor whole = {};                         ///< gradient plus kept error in this step, float32
  at::Tensor basis = {};                         ///< P [n, r]
};

/// Separates the gradients of a bucket into matrices worth compressing and the rest.
struct Parts {
  std::vector<Matrix> matrices;
  std::vector<at::Tensor> rest;
};

at::Tensor drawn_factor(const Parameter& parameter, std::int64_t columns, std::int64_t rank,
                        const at::TensorOptions& options) {
  std::vector<double> numbers(static_cast<std::size_t>(columns * rank));
  draw(Init::normal(1), philox_key(0, "grad-compression." + parameter.name()), 0, numbers);
  return at::from_blob(numbers.data(), {columns, rank}, at::kDouble).to(options.dtype(at::kFloat));
}

Parts parts_of(const ParamBucket& bucket, std::int64_t rank) {
  Parts parts;
  for (const Parameter* parameter : bucket.parameters) {
    const at::Tensor& grad = parameter->grad();
    const std::int64_t rows = grad.size(0), columns = grad.numel() / rows;
    if (rank * (rows + columns) >= rows * columns) {
      parts.rest.push_back(grad.view({-1}));
      continue;
    }
    parts.matrices.push_back(
        {.grad = grad.view({rows, columns}),
         .factor = drawn_factor(*parameter, columns, rank, grad.options()),
         .error = at::zeros({rows, columns}, grad.options().dtype(at::kFloat))});
  }
  return parts;
}

/// Packs tensors into one message and unpacks it.
at::Tensor packed(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}).to(at::kFloat));
  return at::cat(flat);
}

void unpack(const at::Tensor& message, const std::vector<at::Tensor>& tensors) {
  std::int64_t begin = 0;
  for (at::Tensor tensor : tensors) {
    tensor.copy_(message.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

/// Gram–Schmidt, column by column. A column that depends on earlier ones becomes zero.
void orthonormalize(const at::Tensor& columns_nr) {
  constexpr double kLeast = 1e-30;
  for (std::int64_t i = 0; i < columns_nr.size(1); ++i) {
    at::Tensor column = columns_nr.select(1, i);
    column.div_((column * column).sum().sqrt().clamp_min(kLeast));
    if (i + 1 == columns_nr.size(1)) break;
    at::Tensor rest = columns_nr.narrow(1, i + 1, columns_nr.size(1) - i - 1);
    rest.sub_(at::outer(column, rest.t().mv(column)));
  }
}

/// PowerSGD (Vogels, Karimireddy and Jaggi 2019). A gradient matrix M becomes P·Qᵀ, where P is
/// orthonormal and P and Q have options.compression_rank columns and are summed over ranks. The
/// error is kept and added to M of the next step. Biases, norms and small matrices are sent
/// uncompressed. Requires whole buckets, that is, no distributed optimizer. A step with non-finite
/// gradients does not change the kept error.
class LowRankCompression : public GradCompression {
 public:
  explicit LowRankCompression(const DataParallelOptions& options)
      : all_(options.all), rank_(options.compression_rank), averages_(options.averages) {
    MEGATRON_CHECK(options.shard.size == 1, "low-rank gradients in shards of ", options.shard.size);
  }

  PendingWork start(const ParamBucket& bucket, const StartReduce&) override {
    const auto [found, is_new] = parts_.try_emplace(&bucket);
    Parts& parts = found->second;
    if (is_new) parts = parts_of(bucket, rank_);
    std::vector<at::Tensor> sent = parts.rest;
    for (Matrix& matrix : parts.matrices) {
      matrix.whole = matrix.grad.to(at::kFloat) + matrix.error;
      matrix.basis = matrix.whole.mm(matrix.factor);
      sent.push_back(matrix.basis);
    }
    const at::Tensor message = packed(sent);
    PendingWork sum = all_.comm->start_all_reduce(message, "low-rank gradients",
                                                  averages_ ? ReduceOp::average : ReduceOp::sum);
    return and_then(std::move(sum), [this, &parts, sent = std::move(sent), message] {
      unpack(message, sent);
      finish(parts);
    });
  }

  void commit() override {
    for (auto& [bucket, parts] : parts_) {
      for (Matrix& matrix : parts.matrices) {
        if (!matrix.next_error.defined()) continue;
        matrix.error = std::exchange(matrix.next_error, {});
        matrix.factor = std::exchange(matrix.next_factor, {});
      }
    }
  }

 private:
  void finish(Parts& parts) const {
    if (parts.matrices.empty()) return;
    std::vector<at::Tensor> factors;
    for (const Matrix& matrix : parts.matrices) {
      orthonormalize(matrix.basis);
      factors.push_back(matrix.whole.t().mm(matrix.basis));
    }
    const at::Tensor message = packed(factors);
    all_.comm->all_reduce(message, "low-rank gradients",
                          averages_ ? ReduceOp::average : ReduceOp::sum);
    unpack(message, factors);
    for (std::size_t i = 0; i < factors.size(); ++i) take(parts.matrices[i], factors[i]);
  }

  /// Replaces the gradient by P·Qᵀ and keeps this rank's share of the error.
  void take(Matrix& matrix, const at::Tensor& factor) const {
    const at::Tensor product = matrix.basis.mm(factor.t());
    const at::Tensor mine = averages_ ? product : product / static_cast<double>(all_.size);
    const at::Tensor is_finite = at::isfinite(product).all();
    matrix.next_error = at::where(is_finite, matrix.whole - mine, matrix.error);
    matrix.next_factor = at::where(is_finite, factor, matrix.factor);
    matrix.grad.copy_(product);
    matrix.whole = matrix.basis = at::Tensor();
  }

  const Axis all_;
  std::int64_t rank_;
  bool averages_;
  std::unordered_map<const ParamBucket*, Parts> parts_;
};

}  // namespace

PendingWork and_then(PendingWork first, std::function<void()> then) {
  return std::make_unique<ContinuationWork>(std::move(first), std::move(then));
}

std::unique_ptr<GradCompression> make_grad_compression(const DataParallelOptions& options) {
  if (options.compression == "none") return nullptr;
  if (options.compression == "bf16") return std::make_unique<Bf16Compression>();
  if (options.compression == "low-rank") return std::make_unique<LowRankCompression>(options);
  throw UserError({"--ddp-grad-compression", options.compression, "use none, bf16 or low-rank"});
}

}  // namespace megatron
