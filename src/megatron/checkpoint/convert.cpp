#include "megatron/checkpoint/convert.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/carried_tokenizer.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
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

/// Names every weight that would be written with values that are not finite.
void require_finite(WeightReader& reader, std::optional<at::ScalarType> dtype,
                    Conversion& conversion, bool keeps_them) {
  std::vector<std::string> faults;
  bool only_in_dtype = true;
  for (const WeightInfo& info : reader.weights()) {
    const at::Tensor weight = reader.read(info.name);
    const std::string fault = non_finite_fault(info.name, dtype ? weight.to(*dtype) : weight);
    if (fault.empty()) continue;
    faults.push_back(fault);
    only_in_dtype = only_in_dtype && count_non_finite(weight) == 0;
  }
  if (faults.empty()) return;
  if (keeps_them) {
    conversion.notes.push_back("weights are not finite:" + name_lines(faults));
    return;
  }
  const std::string cause = only_in_dtype
                                ? "they overflow in the type of --dtype: choose bf16 or fp32"
                                : "load an earlier checkpoint with --ckpt-step; the run diverged, "
                                  "or the weights are damaged";
  require_no_names("weights that are not finite", faults,
                   cause + ". --keep-non-finite converts them all the same");
}

std::filesystem::path write_release(WeightReader& reader, const CheckpointSource& source, const ConvertRequest& request) {
  CheckpointContent content;
  content.manifest.model = architecture_to_json(source.model);
  content.manifest.settings = tokenizer_settings(source.tokenizer);
  content.manifest.model_type = source.model_type;
  content.carried = source.carried;
  for (const WeightInfo& info : reader.weights()) {
    const at::ScalarType type = request.dtype.value_or(info.type);
    content.weights.push_back({.name = info.name,
                               .kind = TensorKind::weight,
                               .type = stored_type_of(type),
                               .global_shape = info.shape,
                               .region = {Shape(info.shape.size(), 0), info.shape},
                               .tensor = [&reader, name = info.name, type] { return reader.read(name).to(type); }});
  }
  return write_checkpoint(request.save, kReleaseFolder, kReleaseFolder, std::move(content));
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
  if (!carries_tokenizer(source.carried))
    carry_tokenizer(tokenizer_files(source.tokenizer), source.carried);
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
    carry_tokenizer(tokenizer_files(request.tokenizer), source->carried);
  }
  Conversion conversion{.folder = request.save, .notes = {}};
  const auto reader = open_weights(*source);
  require_finite(*reader, request.dtype, conversion, request.keeps_non_finite);
  if (request.format == "megatron") {
    carry_run_tokenizer(*source, conversion.notes);
    conversion.folder = write_release(*reader, *source, request);
    return conversion;
  }
  MEGATRON_CHECK(request.format == "hf", "unknown format ", request.format);
  const TokenizerExport tokenizer = export_tokenizer(source->tokenizer, source->carried);
  conversion.notes.insert(conversion.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  write_hf_directory(*reader,
                     {.model = source->model,
                      .model_type = export_family(*source, request),
                      .dtype = request.dtype,
                      .carried = source->carried,
                      .ids = tokenizer.ids},
                     request.save);
  return conversion;
}

}  // namespace megatron
