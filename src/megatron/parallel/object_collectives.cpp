#include "megatron/parallel/object_collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "megatron/base/error.h"
#include "megatron/parallel/comm.h"

namespace megatron {

std::vector<std::string> all_gather_strings(const Axis& axis, const std::string& text,
                                            c10::Device device) {
  if (axis.size == 1) return {text};
  MEGATRON_CHECK(axis.comm != nullptr, "the axis ", axis.name, " has no communicator");
  const auto options = at::TensorOptions().device(device);
  const at::Tensor size =
      at::full({1}, static_cast<std::int64_t>(text.size()), options.dtype(at::kLong));
  const at::Tensor sizes = at::empty({axis.size}, size.options());
  axis.comm->all_gather(sizes, size, "sizes of texts");
  const at::Tensor sizes_here = sizes.cpu();
  const std::int64_t* lengths = sizes_here.const_data_ptr<std::int64_t>();
  const std::int64_t longest =
      std::max<std::int64_t>(1, *std::max_element(lengths, lengths + axis.size));
  const at::Tensor mine = at::zeros({1, longest}, at::kByte);
  if (!text.empty()) std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = at::empty({axis.size, longest}, options.dtype(at::kByte));
  axis.comm->all_gather(all, mine.to(device), "texts");
  const at::Tensor all_here = all.cpu();
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < axis.size; ++rank) {
    texts.emplace_back(
        reinterpret_cast<const char*>(all_here.const_data_ptr<std::uint8_t>()) + rank * longest,
        static_cast<std::size_t>(lengths[rank]));
  }
  return texts;
}

std::vector<std::string> broadcast_strings(const Axis& axis, const std::vector<std::string>& texts,
                                           c10::Device device) {
  if (axis.size == 1) return texts;
  std::string packed;  // "<size>:<text>" for each text
  for (const std::string& text : texts) packed += std::to_string(text.size()) + ':' + text;
  const std::string all =
      all_gather_strings(axis, axis.rank == 0 ? packed : std::string(), device).front();
  std::vector<std::string> shared;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t colon = all.find(':', at), size = std::stoull(all.substr(at, colon - at));
    shared.push_back(all.substr(colon + 1, size));
    at = colon + 1 + size;
  }
  return shared;
}

}  // namespace megatron
