#include "megatron/checkpoint/convert.h"

#include <algorithm>
#include <map>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/checkpoint_writer.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/hf_writer.h"
#include "megatron/checkpoint/megatron_lm/torch_dist.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/data_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/models/hf/hf_family.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

/// Reads weights in the type of --dtype and checks that they are finite. Unless non-finite values
/// are allowed, the first such weight throws an error that names all of them.
class FiniteCheckReader : public WeightReader {
 public:
  FiniteCheckReader(WeightReader& stored, std::optional<at::ScalarType> dtype,
                    bool allow_non_finite)
      : stored_(stored), weights_(stored.weights()), allow_non_finite_(allow_non_finite) {
    for (WeightInfo& info : weights_) info.type = dtype.value_or(info.type);
  }

  const std::vector<WeightInfo>& weights() const override { return weights_; }
  const std::vector<WeightInfo>& states() const override { return stored_.states(); }
  void copy_slice(const std::string& name, const TensorSlice& slice,
                  at::Tensor destination) override {
    stored_.copy_slice(name, slice, destination);
    const bool is_weight =
        std::ranges::binary_search(weights_, name, {}, &WeightInfo::name);  // else a state
    if (!is_weight || count_non_finite(destination) == 0) return;
    if (!allow_non_finite_) throw_non_finite();
    errors_[name] = non_finite_error(name, destination);
  }

  bool has_thrown() const { return has_thrown_; }
  /// Returns the errors of non_finite_error() by weight name, for weights that were converted.
  const std::map<std::string, std::string>& errors() const { return errors_; }

 private:
  [[noreturn]] void throw_non_finite() {
    has_thrown_ = true;
    std::vector<std::string> errors;
    bool only_in_dtype = true;
    for (const WeightInfo& info : weights_) {
      const at::Tensor weight = stored_.read(info.name);
      const std::string fault = non_finite_error(info.name, weight.to(info.type));
      if (fault.empty()) continue;
      errors.push_back(fault);
      only_in_dtype = only_in_dtype && count_non_finite(weight) == 0;
    }
    const std::string cause = only_in_dtype
                                  ? "they overflow in the type of --dtype: choose bf16 or fp32"
                                  : "load an earlier checkpoint with --ckpt-step; the run "
                                    "diverged, or the weights are damaged";
    require_no_names("weights that are not finite", errors,
                     cause + ". Give --keep-non-finite to convert them anyway");
    MEGATRON_CHECK(false, "a weight became finite when it was read again");
  }

  WeightReader& stored_;
  std::vector<WeightInfo> weights_;
  bool allow_non_finite_, has_thrown_ = false;
  std::map<std::string, std::string> errors_;
};

/// Adds a note that names the converted weights with values that are not finite.
void add_notes_on_non_finite(const FiniteCheckReader& reader, ConvertResult& conversion) {
  if (reader.errors().empty()) return;
  std::vector<std::string> errors;
  for (const auto& [name, fault] : reader.errors()) errors.push_back(fault);
  conversion.notes.insert(conversion.notes.begin(), "weights are not finite:" + name_lines(errors));
}

/// Removes the lock file and then the empty folder after a release was refused.
void remove_empty_root(const fs::path& root) {
  std::error_code ignored;
  fs::remove(root / kLockFile, ignored);
  fs::remove(root, ignored);
}

/// Writes a release checkpoint. A refused weight leaves no new folder behind.
std::filesystem::path write_checked_release(FiniteCheckReader& reader,
                                            const CheckpointSource& source,
                                            const std::filesystem::path& root) {
  const bool is_new = !fs::exists(root);
  try {
    return write_release(reader, source, root);
  } catch (const UserError&) {
    if (is_new && reader.has_thrown()) remove_empty_root(root);
    throw;
  }
}

std::string export_family(const CheckpointSource& source, const ConvertRequest& request) {
  std::vector<std::string> types;
  for (const HfFamily& family : hf_families())
    if (family.network == source.family) types.push_back(family.model_type);
  if (request.hf_model_type.empty() || types.empty()) return source.model_type;
  if (std::ranges::count(types, request.hf_model_type) > 0) return request.hf_model_type;
  std::string known;
  for (const std::string& type : types)
    known += (known.empty() ? "" : type == types.back() ? " or " : ", ") + type;
  throw UserError({"unknown --hf-model-type", request.hf_model_type, "use " + known});
}

/// Adds the files of the run's tokenizer, which the run named by path, to the release.
void add_run_tokenizer_files(CheckpointSource& source, std::vector<std::string>& notes) try {
  if (!has_tokenizer_files(source.auxiliary_files) ||
      source.tokenizer.tokenizer_type == "ByteTokenizer")
    replace_tokenizer_files(hf_tokenizer_files(source.tokenizer), source.auxiliary_files);
} catch (const UserError& error) {
  notes.push_back("the tokenizer's files are not copied: " + error.parts().what +
                  "; give --tokenizer-model to add them");
}

/// Returns the ids that the run which saved a checkpoint added to its tokenizer's.
AddedIds added_ids(const CheckpointSource& source) {
  if (source.kind == CheckpointSource::Kind::hugging_face) return {};
  Settings saved;
  read_saved_settings(*source.manifest->settings, saved);
  return {.num_rows = source.model.vocab_size, .num_sentinels = saved.data->vocab_extra_ids};
}

/// Takes the tokenizer that the flags name, or that of the weights with the settings that they
/// change, and its files.
void choose_tokenizer(const TokenizerFlags& flags, CheckpointSource& source) {
  const TokenizerConfig chosen =
      has_tokenizer(flags.config) ? flags.config : with_tokenizer_flags(source.tokenizer, flags);
  if (chosen == source.tokenizer) return;
  if (!has_tokenizer(chosen))
    throw UserError({"flags change the tokenizer, but none is stored with these weights",
                     source.folder.string(), "give --tokenizer-type or --tokenizer-model"});
  const auto tokenizer = make_tokenizer(chosen);
  if (tokenizer->vocab_size() > source.model.vocab_size)
    throw UserError({"the tokenizer has " + std::to_string(tokenizer->vocab_size()) + " ids",
                     "the model's vocabulary has " + std::to_string(source.model.vocab_size),
                     "use the tokenizer that the model was trained with"});
  source.tokenizer = chosen;
  replace_tokenizer_files(hf_tokenizer_files(chosen), source.auxiliary_files);
}

}  // namespace

ConvertResult convert_checkpoint(const ConvertRequest& request) {
  auto source = find_checkpoint(request.load, request.step);
  if (!source)
    throw UserError(
        {"--load " + request.load.string() + ": there is no checkpoint", "", "check the path"});
  require_empty_folder(request.save);
  if (request.is_q8_0 && request.format != "gguf")
    throw UserError({"--dtype q8_0 needs --format gguf", request.format, "choose another type"});
  choose_tokenizer(request.tokenizer, *source);
  ConvertResult conversion{.folder = request.save, .notes = source->notes};
  const auto stored = open_weights(*source);
  FiniteCheckReader reader(*stored, request.dtype, request.allow_non_finite);
  if (request.format == "megatron") {
    add_run_tokenizer_files(*source, conversion.notes);
    conversion.folder = write_checked_release(reader, *source, request.save);
  } else if (request.format == "torch_dist") {
    conversion.folder = write_torch_dist(reader, *source, request.save);
  } else if (request.format == "dcp") {
    write_dcp(reader, *source, request.save);
  } else {
    const bool is_gguf = request.format == "gguf";
    MEGATRON_CHECK(is_gguf || request.format == "hf", "unknown format ", request.format);
    const TokenizerExport tokenizer =
        export_tokenizer(source->tokenizer, source->auxiliary_files, added_ids(*source));
    conversion.notes.insert(conversion.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
    const HfExport files{.model = source->model,
                         .network = &find_model_family(source->family, *request.families),
                         .model_type = export_family(*source, request),
                         .dtype = request.dtype,
                         .auxiliary_files = source->auxiliary_files,
                         .ids = tokenizer.ids,
                         .is_gguf = is_gguf,
                         .is_q8_0 = request.is_q8_0};
    for (const std::string& note : write_hf_directory(reader, files, request.save))
      conversion.notes.push_back(note);
  }
  add_notes_on_non_finite(reader, conversion);
  return conversion;
}

}  // namespace megatron
