// Reads the weights of a Hugging Face directory under our parameter names. The constructor checks
// that every tensor is used once and every parameter is filled once.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/weight_map.h"
#include "megatron/models/model_family.h"

namespace megatron {

class HfReader : public WeightReader {
 public:
  explicit HfReader(const std::filesystem::path& folder);

  const HfConfig& config() const { return directory_.config(); }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  const std::vector<WeightInfo>& states() const override { return states_; }
  void copy_slice(const std::string& name, const TensorSlice& slice,
                  at::Tensor destination) override;

 private:
  /// A tensor of the folder: slices of one of our parameters.
  struct Source {
    const HfDirectory::Entry* entry;
    const HfDirectory::Entry* scales;  ///< of a weight in MXFP4, whose blocks `entry` has, or null
    TensorPart part;
    std::vector<TensorSlice> slices;
    at::Tensor view;  ///< TensorPart::oriented(), while its parameter is read
  };

  void link();
  WeightInfo link_weight(const WeightMapping& link, const Sharding& sharding,
                         std::vector<std::string>& missing, std::vector<std::string>& misshapen);
  std::vector<std::string> unused() const;
  /// Returns whether a tensor has the bytes of the tensor `name`.
  bool repeats(const HfDirectory::Entry& copy, const std::string& name) const;

  HfDirectory directory_;
  TransformerConfig model_;  ///< resolved
  std::vector<WeightInfo> weights_, states_;
  std::map<std::string, std::vector<Source>> sources_;  ///< by our names
  std::set<std::string> used_;                          ///< the tensors that the links name
  std::string last_name_;                               ///< the parameter whose sources have views
};

/// Returns the layouts of the parameters of a model by their names: of its weights, or of the
/// states of its layers.
std::map<std::string, Sharding> declared_shardings(const ModelFamily& family,
                                                   const TransformerConfig& model,
                                                   bool of_states = false);

}  // namespace megatron
