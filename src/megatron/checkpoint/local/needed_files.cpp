#include "megatron/checkpoint/local/needed_files.h"

#include <algorithm>

#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/piece_slices.h"
#include "megatron/checkpoint/slice_math.h"

namespace megatron {
namespace {

/// Collects the files with the parts of global tensors that a rank's pieces cover.
class NeededFiles {
 public:
  explicit NeededFiles(const Manifest& manifest) : manifest_(manifest) {}

  /// Adds the files of the tensor that `prefix` and the parameter name, if there is one.
  void add(const std::string& prefix, const ParameterPiece& piece) {
    const auto tensor = manifest_.tensors.find(prefix + piece.parameter->name());
    if (tensor == manifest_.tensors.end()) return;
    for (const TensorSlice& slice : piece_slices(piece, piece.parameter->slices())) {
      const TensorSlice wanted = slice_at(slice.global_offset, slice.shape);
      for (const Piece& stored : tensor->second.pieces) {
        if (intersect(stored.slice, wanted)) files_.insert(stored.file);
      }
    }
  }
  std::set<std::string> take() { return std::move(files_); }

 private:
  const Manifest& manifest_;
  std::set<std::string> files_;
};

}  // namespace

std::set<std::string> needed_files(const Manifest& manifest, const ParamStore& store,
                                   Optimizer* optimizer) {
  NeededFiles needed(manifest);
  for (const ParameterPiece& piece : store.kept_pieces()) needed.add("", piece);
  if (optimizer == nullptr) return needed.take();
  for (const ParameterPiece& piece : optimizer->main_parameters().pieces()) {
    needed.add("", piece);
    needed.add(kMainParameterPrefix, piece);
  }
  optimizer->list_state(
      [&](const ParameterPiece& piece, const std::string& state, at::ScalarType,
          const std::function<at::Tensor()>&) { needed.add(state + ".", piece); });
  return needed.take();
}

}  // namespace megatron
