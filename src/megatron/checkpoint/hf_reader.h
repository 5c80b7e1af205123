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
  /// Reads the parameters `declared` instead of those that the model of config.json declares.
  HfReader(const std::filesystem::path& folder, std::vector<WeightInfo> declared);

  const HfConfig& config() const { return directory_.config(); }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  void copy_slice(const std::string& name, const TensorSlice& slice,
                  at::Tensor destination) override;

 private:
  void link();
  void link_weight(WeightInfo& info, std::vector<std::string>& missing,
                   std::vector<std::string>& misshapen);
  void copy_experts(const WeightMapping& link, const TensorSlice& slice, at::Tensor destination);
  std::vector<std::string> unused() const;
  at::Tensor view(const std::string& their_name) const;
  bool repeats_embedding(const HfDirectory::Entry& output_layer) const;

  HfDirectory directory_;
  TransformerConfig model_;  ///< resolved
  std::vector<WeightInfo> weights_;
  std::map<std::string, WeightMapping> links_;
  std::set<std::string> used_;  ///< the tensors that the links name
  std::string last_name_;
  at::Tensor last_;
};

/// Returns names and global shapes of the parameters of a model, ascending by name.
std::vector<WeightInfo> declared_weights(const ModelFamily& family, const TransformerConfig& model);

}  // namespace megatron
