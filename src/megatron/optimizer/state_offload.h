// Optimizer state that lies outside the device's memory: which pieces, and how they are cut into
// windows that pass through memory one after another during an update.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "megatron/ops/offload_store.h"
#include "megatron/optimizer/parameter_sums.h"

namespace megatron {

/// Bytes of windows that may wait to be written besides those that are updated and read.
inline constexpr std::uint64_t kOptimizerBytesInFlight = std::uint64_t{64} << 20;

struct StateOffloadOptions {
  std::shared_ptr<OffloadStore> store = nullptr;  ///< null: nothing is offloaded
  double fraction = 1;           ///< share of the elements, rounded to whole pieces
  bool overlaps_copies = false;  ///< read a window while the one before is updated
  /// Elements of a window. One array of float32 is then 4 MiB.
  std::int64_t window_elements = std::int64_t{1} << 20;
};

/// The elements of an update that are in memory together.
using StateWindow = std::vector<SumRange>;

class StateOffload {
 public:
  /// `ranges` covers this rank's pieces in ascending order.
  StateOffload(const ParamStore& store, const std::vector<SumRange>& ranges,
               StateOffloadOptions options);

  /// Returns whether the state of piece `index` of the store is offloaded: the first pieces in
  /// canonical order are.
  bool contains(std::size_t index) const { return index < num_pieces_; }
  const std::vector<StateWindow>& windows() const { return windows_; }
  const StateOffloadOptions& options() const { return options_; }

 private:
  StateOffloadOptions options_;
  std::size_t num_pieces_ = 0;
  std::vector<StateWindow> windows_;
};

/// One kind of state (exp_avg, main weights …) of the offloaded pieces: an array of elements, and
/// of scales if blocks of elements have them. It starts as zeros. A window is in the store, or open
/// in memory.
class OffloadedArray {
 public:
  struct Options {
    at::ScalarType dtype = at::kFloat;
    bool has_scales = false;  ///< a float32 for each kernels::kStateBlock elements
    c10::Device device{c10::kCPU};
    /// Selects among the offloaded pieces, by index.
    std::function<bool(std::size_t piece)> selects;
  };
  OffloadedArray(std::shared_ptr<const StateOffload> offload, const ParamStore& store,
                 const Options& options);

  bool contains(std::size_t piece) const {
    return piece < is_selected_.size() && is_selected_[piece];
  }
  /// Returns the bytes of all windows.
  std::int64_t num_bytes() const;
  c10::Device device() const { return device_; }

  /// Starts reading a window, if there is one of that index.
  void prefetch(std::size_t window);
  /// Brings a window into memory, where elements() and scales() may be written.
  void open(std::size_t window);
  /// Gives an open window back to the store.
  void close(std::size_t window);
  /// Returns the flat elements of range `index` of an open window, or its scales.
  at::Tensor elements(std::size_t window, std::size_t index) const;
  at::Tensor scales(std::size_t window, std::size_t index) const;

  /// Calls visit(window, index of its range, range) for each range of a piece, with its window
  /// open. The last window stays open until flush() or the next visit.
  using RangeVisitor = std::function<void(std::size_t, std::size_t, const SumRange&)>;
  void visit_piece(std::size_t piece, const RangeVisitor& visit) {
    visit_ranges(piece, Access::write, visit);
  }
  /// As visit_piece(), for reading only: nothing goes back to the store, which needs no space.
  void read_piece(std::size_t piece, const RangeVisitor& visit) {
    visit_ranges(piece, Access::read, visit);
  }
  /// Closes the window that visit_piece() or read_piece() left open.
  void flush();

 private:
  enum class Access { read, write };
  struct Window {
    std::int64_t num_blocks = 0;
    std::vector<std::int64_t> first_block;  ///< of each range; −1 when its piece is not selected
    std::unique_ptr<OffloadedTensor> stored;
    at::Tensor bytes;      ///< defined while open
    bool is_copy = false;  ///< `bytes` are a copy of `stored`, to be read only
  };
  std::int64_t window_bytes(const Window& window) const;
  void open_copy(std::size_t window);
  void visit_ranges(std::size_t piece, Access access, const RangeVisitor& visit);

  std::shared_ptr<const StateOffload> offload_;
  at::ScalarType dtype_;
  bool has_scales_;
  c10::Device device_;
  std::vector<bool> is_selected_;
  std::vector<std::size_t> first_window_;  ///< of each piece
  std::vector<Window> windows_;
  std::size_t visited_;  ///< the window that a visit left open; windows_.size(): none
};

}  // namespace megatron
