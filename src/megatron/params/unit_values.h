// Weights of which each rank keeps a slice only (ZeRO-3, FSDP), or that lie in another memory:
// gathers those of one unit of the model at a time, when one of them is read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "megatron/parallel/comm.h"
#include "megatron/params/offloaded_values.h"
#include "megatron/params/param_bucket.h"
#include "megatron/params/unit_buffers.h"
#include "megatron/params/unit_order.h"

namespace megatron {

/// Two units at most have storage: the one that was read last, and the one that is gathered ahead
/// or was read before it. Forward, backward and recomputation in backward therefore need no calls:
/// reading a weight makes its unit complete. All ranks of the shard axes must read units in the
/// same order.
class UnitValues final : private WeightReadHook {
 public:
  /// Makes the values of bucket `index` views of a tensor, or takes their storage away when it is
  /// undefined.
  using BindValues = std::function<void(std::size_t index, at::Tensor value)>;

  /// `buckets` must outlive this and must not move, and so must `offloaded`, which holds the values
  /// of the buckets that offload them and is null if none does.
  UnitValues(const std::vector<ParamBucket>& buckets, c10::Device device, BindValues bind,
             OffloadedValues* offloaded);
  UnitValues(const UnitValues&) = delete;
  UnitValues& operator=(const UnitValues&) = delete;
  ~UnitValues() override;

  /// Gathers the precise weights of a bucket from `own`, this rank's slice of their float32 main
  /// weights, and rounds the values from them. An undefined tensor ends that.
  void set_main_slice(std::size_t bucket, at::Tensor own);
  /// Ends what set_main_slice() began, for all buckets. It waits for nothing and throws nothing, so
  /// that a destructor may call it.
  void forget_main_slices();
  /// Begins a pass over the model, whose reads will resemble those of an earlier one (UnitOrder).
  void begin_pass() {
    last_read_.reset();
    order_.begin();
  }
  /// Forgets all gathered weights, because their slices have changed.
  void discard();

  /// Returns the bytes of the buffers of units that have storage, of their offloaded slices, and of
  /// buffers that are free.
  std::int64_t held_bytes() const;

  /// What was gathered so far.
  struct Counters {
    /// How often the buckets of a unit were gathered or read from their store; in the order of
    /// backward.
    std::vector<std::int64_t> gathers;
    std::int64_t unread = 0;  ///< gathered ahead and not read
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Unit {
    std::vector<std::size_t> buckets;  ///< indices
    std::int64_t num_bytes = 0;        ///< of the buffer that its buckets are gathered or read into
    std::int64_t slice_bytes = 0;      ///< of the buffer of its offloaded slices
    bool gathers_ahead = false;
  };
  /// A unit with storage.
  struct Gathered {
    std::size_t unit = 0;
    at::Tensor buffer;
    at::Tensor slices = {};                ///< buffer of the offloaded slices that are gathered
    std::vector<PendingWork> works = {};   ///< pending all-gathers
    std::vector<at::Tensor> values = {};   ///< one per bucket of the unit; undefined: being read
    std::vector<at::Tensor> precise = {};  ///< float32 form of these; undefined for most
    bool is_bound = false;
  };

  void open(const Parameter& parameter) override;
  Gathered* find(std::size_t unit);
  Gathered& start(std::size_t unit);
  /// Offloaded slices of a unit that is not gathered yet.
  struct SlicesAhead {
    std::size_t unit = 0;
    at::Tensor buffer;
  };
  /// Starts reading the offloaded slices that a gather of a unit needs. The result is their buffer,
  /// undefined if there are none.
  at::Tensor start_slices(std::size_t unit);
  /// Does so before the gather, in place of slices of another unit.
  void prefetch_slices(std::size_t unit);
  /// Returns the buffer of slices of this unit that are read ahead, and drops those of another.
  at::Tensor take_slices_ahead(std::size_t unit);
  void drop_slices_ahead();
  void wait_for_gathers(Gathered& gathered);
  void finish(Gathered& gathered);
  void release(Gathered& gathered);
  void unbind(const Gathered& gathered);
  /// Releases the units that were read longest ago until `count` have storage.
  void keep_latest(std::size_t count);

  const std::vector<ParamBucket>& buckets_;
  BindValues bind_;
  OffloadedValues* const offloaded_;
  std::vector<Unit> units_;
  std::unordered_map<const Parameter*, std::size_t> unit_of_;
  std::vector<at::Tensor> main_slices_;  ///< one per bucket
  UnitBuffers buffers_, slice_buffers_;
  std::optional<SlicesAhead> slices_ahead_;
  std::deque<Gathered> gathered_;  ///< at most two, in the order of their last read or start
  std::optional<std::size_t> last_read_;
  UnitOrder order_;
  Counters counters_;
};

}  // namespace megatron
