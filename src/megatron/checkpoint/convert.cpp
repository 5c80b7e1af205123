#include "megatron/checkpoint/convert.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/carried_tokenizer.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/folder_writer.h"
#include "megatron/checkpoint/hf_writer.h"
#include "megatron/checkpoint/non_finite.h"
#include "megatron/checkpoint/open_weights.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/models/architecture.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

/// Gives the weights in the type of --dtype, and looks for values that are not finite as they are
/// read. Unless these are kept, the first such weight is an error that names all of them.
class FiniteReader : public WeightReader {
 public:
  FiniteReader(WeightReader& stored, std::optional<at::ScalarType> dtype, bool keeps_them)
      : stored_(stored), weights_(stored.weights()), keeps_them_(keeps_them) {
    for (WeightInfo& info : weights_) info.type = dtype.value_or(info.type);
  }

  const std::vector<WeightInfo>& weights() const override { return weights_; }
  void copy_region(const std::string& name, const Region& region,
                   at::Tensor destination) override {
    stored_.copy_region(name, region, destination);
    if (count_non_finite(destination) == 0) return;
    if (!keeps_them_) refuse();
    faults_[name] = non_finite_fault(name, destination);
  }

  bool has_refused() const { return has_refused_; }
  /// "tensor 'name': 3 of 512 values are not finite" by name, of the weights that were kept.
  const std::map<std::string, std::string>& faults() const { return faults_; }

 private:
  [[noreturn]] void refuse() {
    has_refused_ = true;
    std::vector<std::string> faults;
    bool only_in_dtype = true;
    for (const WeightInfo& info : weights_) {
      const at::Tensor weight = stored_.read(info.name);
      const std::string fault = non_finite_fault(info.name, weight.to(info.type));
      if (fault.empty()) continue;
      faults.push_back(fault);
      only_in_dtype = only_in_dtype && count_non_finite(weight) == 0;
    }
    const std::string cause = only_in_dtype
                                  ? "they overflow in the type of --dtype: choose bf16 or fp32"
                                  : "load an earlier checkpoint with --ckpt-step; the run "
                                    "diverged, or the weights are damaged";
    require_no_names("weights that are not finite", faults,
                     cause + ". --keep-non-finite converts them all the same");
    MEGATRON_CHECK(false, "a weight became finite when it was read again");
  }

  WeightReader& stored_;
  std::vector<WeightInfo> weights_;
  bool keeps_them_, has_refused_ = false;
  std::map<std::string, std::string> faults_;
};

/// Adds a note that names the weights that were kept though they are not finite.
void add_faults(const FiniteReader& reader, Conversion& conversion) {
  if (reader.faults().empty()) return;
  std::vector<std::string> faults;
  for (const auto& [name, fault] : reader.faults()) faults.push_back(fault);
  conversion.notes.insert(conversion.notes.begin(),
                          "weights are not finite:" + name_lines(faults));
}

/// Removes the lock, and the folder that then is empty, of a release that was refused.
void remove_empty_root(const fs::path& root) {
  std::error_code ignored;
  fs::remove(root / kLockFile, ignored);
  fs::remove(root, ignored);
}

std::filesystem::path write_release(FiniteReader& reader, const CheckpointSource& source,
                                    const ConvertRequest& request) {
  CheckpointContent content;
  content.manifest.model = architecture_to_json(source.model);
  content.manifest.settings = tokenizer_settings(source.tokenizer);
  content.manifest.model_type = source.model_type;
  content.carried = source.carried;
  for (const WeightInfo& info : reader.weights()) {
    content.weights.push_back({.name = info.name,
                               .kind = TensorKind::weight,
                               .type = stored_type_of(info.type),
                               .global_shape = info.shape,
                               .region = {Shape(info.shape.size(), 0), info.shape},
                               .tensor = [&reader, name = info.name] { return reader.read(name); }});
  }
  const bool is_new = !fs::exists(request.save);
  try {
    return write_checkpoint(request.save, kReleaseFolder, kReleaseFolder, std::move(content));
  } catch (const UserError&) {
    if (is_new && reader.has_refused()) remove_empty_root(request.save);
    throw;
  }
}

std::string export_family(const CheckpointSource& source, const ConvertRequest& request) {
  if (request.hf_model_type.empty()) return source.model_type;
  const auto families = hf_families();
  if (std::find(families.begin(), families.end(), request.hf_model_type) == families.end()) {
    throw UserError({"--hf-model-type", request.hf_model_type, "use gpt2, llama, qwen2, qwen3 or mistral"});
  }
  return request.hf_model_type;
}

/// A release carries the files of the tokenizer that the run named by path.
void carry_run_tokenizer(CheckpointSource& source, std::vector<std::string>& notes) try {
  if (!carries_tokenizer(source.carried) || source.tokenizer.tokenizer_type == "ByteTokenizer")
    carry_tokenizer(exported_tokenizer_files(source.tokenizer), source.carried);
} catch (const UserError& error) {
  notes.push_back("the tokenizer's files are not carried: " + error.parts().what +
                  "; give --tokenizer-model to carry them");
}

}  // namespace

Conversion convert_checkpoint(const ConvertRequest& request) {
  auto source = find_checkpoint(request.load, request.step);
  if (!source) throw UserError({"--load " + request.load.string() + ": there is no checkpoint", "", "check the path"});
  require_new_folder(request.save);
  if (names_a_tokenizer(request.tokenizer)) {
    const auto tokenizer = make_tokenizer(request.tokenizer);
    if (tokenizer->vocab_size() > source->model.vocab_size)
      throw UserError({"the tokenizer has " + std::to_string(tokenizer->vocab_size()) + " ids",
                       "the model's vocabulary has " + std::to_string(source->model.vocab_size),
                       "use the tokenizer that the model was trained with"});
    source->tokenizer = request.tokenizer;
    carry_tokenizer(exported_tokenizer_files(request.tokenizer), source->carried);
  }
  Conversion conversion{.folder = request.save, .notes = {}};
  const auto stored = open_weights(*source);
  FiniteReader reader(*stored, request.dtype, request.keeps_non_finite);
  if (request.format == "megatron") {
    carry_run_tokenizer(*source, conversion.notes);
    conversion.folder = write_release(reader, *source, request);
    add_faults(reader, conversion);
    return conversion;
  }
  MEGATRON_CHECK(request.format == "hf", "unknown format ", request.format);
  const TokenizerExport tokenizer = export_tokenizer(source->tokenizer, source->carried);
  conversion.notes.insert(conversion.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  write_hf_directory(reader,
                     {.model = source->model,
                      .model_type = export_family(*source, request),
                      .dtype = request.dtype,
                      .carried = source->carried,
                      .ids = tokenizer.ids},
                     request.save);
  add_faults(reader, conversion);
  return conversion;
}

}  // namespace megatron
