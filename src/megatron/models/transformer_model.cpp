// The one model class: it runs a ModelSpec on the pipeline stages that a rank holds.
// b samples, s positions, h hidden channels, v vocabulary.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/philox.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/model_spec.h"
#include "megatron/nn/relative_positions.h"
#include "megatron/nn/transformer_layer.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/rotary.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// What a pipeline stage computes of a stack.
struct StackPart {
  std::size_t stack = 0;
  bool has_input = false;  ///< the stack begins here
  std::int64_t begin = 0;  ///< index of the first layer among this rank's layers of the stack
  std::int64_t num_layers = 0;
  bool has_end = false;  ///< the stack ends here, with its final norm
};

/// What passes between two layers: the hidden rows first, then what is published across.
struct PassedTensor : PublishedTensor {
  std::size_t stack = 0;  ///< whose rows it has
  bool is_fp32 = false;   ///< of the residual stream, with --fp32-residual-connection
};
using Border = std::vector<PassedTensor>;

/// A pipeline stage of this rank.
struct Chunk {
  StageLayers stage;
  bool receives_hidden = false;  ///< hidden rows come from the previous stage
  bool sends_hidden = false;     ///< hidden rows go to the next stage
  std::vector<StackPart> parts = {};
  Border received = {}, sent = {};
  /// Returns true for a stage before the embedding or after the output, which has no work.
  bool is_empty() const { return !receives_hidden && !sends_hidden && !stage.has_output; }
};

/// Returns whether rows pass between stage `place` - 1 and stage `place`.
bool is_inside(const PipelineLayout& layout, std::int64_t place) {
  const auto begin = layout.stages.begin(), end = begin + place;
  return std::ranges::any_of(begin, end, &StageLayers::has_embedding) &&
         std::ranges::none_of(begin, end, &StageLayers::has_output);
}

/// The modules of a stack on this rank.
struct Stack {
  std::shared_ptr<Input> input;
  std::shared_ptr<TransformerBlock> block;
  std::unique_ptr<RelativePositions> positions;  ///< the bias that all layers share, or null
  std::optional<RotaryFrequencies> rotary, local_rotary;
};

/// A microbatch, or a view of one that this holds.
class MicrobatchView {
 public:
  /// Refers to `given`.
  explicit MicrobatchView(const Microbatch& given) : given_(&given) {}
  explicit MicrobatchView(Microbatch&& made) : made_(std::move(made)) {}
  const Microbatch& operator*() const { return made_ ? *made_ : *given_; }

 private:
  std::optional<Microbatch> made_ = {};
  const Microbatch* given_ = nullptr;
};

class TransformerModel : public Model {
 public:
  TransformerModel(ModelSpec spec, const TransformerConfig& config, const Rank& rank,
                   const MakeModelOptions& options)
      : Model(nullptr, ""),
        config_(config),
        rank_(rank),
        spec_(std::move(spec)),
        dtype_(options.dtype),
        offload_store_(options.offload_store),
        smallest_offloaded_(
            options.activations != nullptr ? options.activations->min_offloaded_elements : 0) {
    set_objective(spec_.objective);
    const PipelineLayout layout =
        options.layout != nullptr
            ? *options.layout
            : single_stage_layout(config.num_layers, config.num_all_layers() - config.num_layers);
    const std::int64_t pipeline_rank = options.layout != nullptr ? rank.pp.rank : 0;
    std::vector<std::vector<std::int64_t>> layers(spec_.stacks.size());
    for (std::int64_t i = 0; i < layout.num_chunks; ++i) {
      const StageLayers& stage = layout.of(pipeline_rank, i);
      const std::int64_t place = stage_of(layout.order, layout.num_ranks, pipeline_rank, i);
      chunks_.push_back({.stage = stage,
                         .receives_hidden = is_inside(layout, place),
                         .sends_hidden = is_inside(layout, place + 1),
                         .parts = parts_of(stage, layers),
                         .received = border_at(stage.first_layer),
                         .sent = border_at(stage.first_layer + stage.num_layers)});
    }
    const auto has = [this](const StageLayers& stage, const auto& property) {
      std::vector<std::vector<std::int64_t>> unused(spec_.stacks.size());
      return std::ranges::any_of(parts_of(stage, unused), property);
    };
    ends_ = stage_holders(layout, pipeline_rank, [&](const StageLayers& stage) {
      return stage.has_output || has(stage, &StackPart::has_input);
    });
    embeddings_ = stage_holders(layout, pipeline_rank, [&](const StageLayers& stage) {
      return has(stage, &StackPart::has_input);
    });
    while (spec_.stacks[main_].only_for_loss) --main_;
    for (std::size_t i = 0; i < spec_.stacks.size(); ++i) {
      const StageHolders holders =
          stage_holders(layout, pipeline_rank, [&](const StageLayers& stage) {
            return has(stage, [i](const StackPart& part) {
              return part.stack == i && part.num_layers > 0;
            });
          });
      const StackSpec& spec = spec_.stacks[i];
      std::unique_ptr<RelativePositions> positions;  // declared before the layers that use it
      if (!layers[i].empty() && spec.config.has_relative_bias() &&
          !spec.config.relative_attention_per_layer)
        positions = std::make_unique<RelativePositions>(
            this, spec.name + "_relative_pos_emb", spec.config, rank_.tp, !spec.causal, holders);
      stacks_.push_back(make_stack(i, layers[i], options));
      stacks_.back().positions = std::move(positions);
    }
    if (std::ranges::any_of(chunks_, [](const Chunk& chunk) { return chunk.stage.has_output; })) {
      for (const auto& make_head : spec_.heads)
        heads_.push_back(make_head(arguments(config_, options)));
    }
    const std::vector<Parameter*> parameters = declared_parameters(*this);
    if (!parameters.empty()) weight_ = parameters.back();
  }

  const TransformerConfig& config() const override { return config_; }
  std::int64_t num_chunks() const override { return std::ssize(chunks_); }
  std::int64_t num_streams() const override { return spec_.stacks[main_].num_streams; }

  bool is_causal() const override { return spec_.stacks[main_].causal; }
  bool has_encoder() const override { return config_.decoder_num_layers > 0; }
  bool keeps_states() const override { return has_recurrent_layers(config_); }

  std::vector<Module*> units() override {
    std::vector<Module*> units;
    for (const Stack& stack : stacks_) {
      if (stack.input && &first_of_input(stack) == &stack) units.push_back(stack.input.get());
      if (&first_of_name(stack) != &stack) continue;
      for (Module* unit : stack.block->units()) units.push_back(unit);
    }
    return units;
  }

  std::vector<ActivationSpec> input_specs(std::int64_t chunk, const Pass& pass) const override {
    const Chunk& own = this->chunk(chunk);
    return own.receives_hidden ? specs_of(own.received, pass) : std::vector<ActivationSpec>();
  }

  std::vector<ActivationSpec> output_specs(std::int64_t chunk, const Pass& pass) const override {
    const Chunk& own = this->chunk(chunk);
    return own.sends_hidden ? specs_of(own.sent, pass) : std::vector<ActivationSpec>();
  }

  StageOutput forward_chunk(std::int64_t chunk, const Pass& given, const Activations& in) override {
    const Chunk& own = this->chunk(chunk);
    if (own.is_empty()) return {};
    const MicrobatchView microbatch = viewed(main_, given);
    const Pass pass = with_microbatch(given, *microbatch);
    const std::vector<ActivationSpec> received = input_specs(chunk, pass);
    MEGATRON_CHECK(in.size() == received.size(), "a stage was given ", in.size(),
                   " activations instead of ", received.size());
    ForwardContext context = forward_context(pass, config_, rank_);
    const bool is_divided = context.cp != nullptr && context.cp->size > 1;
    context.published_tensors = std::make_shared<Published>();
    for (std::size_t i = 1; i < in.size(); ++i) context.publish(received[i].name, in[i]);
    if (pass.depth > 0)
      context.publish(spec_.stacks[stack_of(pass.depth - 1)].published_name(),
                      pass.microbatch.at("previous_rows"));
    if (pass.routed_experts != nullptr) {
      if (!pass.routed_experts->defined())
        *pass.routed_experts = no_routed_experts(pass, config_, rank_.device);
      context.routed_experts = *pass.routed_experts;
    }
    const at::Tensor positions = position_ids(pass).to(rank_.device);
    at::Tensor hidden_sbh = own.receives_hidden ? in.front() : at::Tensor();
    for (const StackPart& part : own.parts) {
      if (!is_run(part.stack, pass)) continue;
      if (part.stack == main_ || !spec_.stacks[part.stack].view) {
        hidden_sbh = run_part(part, hidden_sbh, pass, positions, context);
        continue;
      }
      const MicrobatchView its_microbatch = viewed(part.stack, given);
      Pass its_pass = with_microbatch(given, *its_microbatch);
      if (part.stack < main_) {  // the text of an encoder begins with this pass
        its_pass.caches = nullptr;
        its_pass.encoder = nullptr;
      }
      ForwardContext its_context = forward_context(its_pass, config_, rank_);
      its_context.published_tensors = context.published_tensors;
      hidden_sbh = run_part(part, hidden_sbh, its_pass, position_ids(its_pass).to(rank_.device),
                            its_context);
    }
    if (const std::int64_t num_layers = own.stage.num_layers - own.stage.num_mtp;
        context.routed_experts.defined() && num_layers > 0)  // ranks route different tokens
      all_reduce_(is_divided ? rank_.tp_cp : rank_.tp,
                  context.routed_experts.narrow(0, own.stage.first_layer, num_layers),
                  "routed experts");
    context.hooks = unit_hooks_;
    if (!own.stage.has_output) {
      Activations out{hidden_sbh};
      const std::vector<ActivationSpec> sent = output_specs(chunk, pass);
      for (std::size_t i = 1; i < sent.size(); ++i) out.push_back(context.published(sent[i].name));
      for (std::size_t i = 0; i < sent.size(); ++i)
        MEGATRON_CHECK(out[i].sizes() == at::IntArrayRef(sent[i].shape) &&
                           out[i].scalar_type() == sent[i].dtype,
                       "a stage sends ", sent[i].name, " ", out[i].sizes(), " in place of ",
                       at::IntArrayRef(sent[i].shape));
      return {.activations = std::move(out)};
    }
    if (pass.wants == Wants::loss && main_ + 1 < stacks_.size()) {
      context.publish(spec_.stacks.back().published_name(), hidden_sbh);
      hidden_sbh = context.published(spec_.stacks[main_].published_name());
    }
    if (pass.rows != nullptr)
      *pass.rows =
          is_divided ? gather_placed_rows(hidden_sbh, *context.placement, *context.cp) : hidden_sbh;
    if (LastHidden* const last = pass.last_hidden; last != nullptr)
      last->rows = last_rows(hidden_sbh, pass, last->counts, context).flatten(0, 1).to(at::kFloat);
    return output(hidden_sbh, pass, context);
  }

 private:
  /// Returns the stack of a depth of multi-token prediction; the decoder is depth 0.
  std::size_t stack_of(std::int64_t depth) const { return main_ + static_cast<std::size_t>(depth); }
  /// Returns whether a pass runs a stack.
  bool is_run(std::size_t stack, const Pass& pass) const {
    if (pass.depth > 0) return stack == stack_of(pass.depth);
    if (stack < main_ && pass.caches != nullptr && has_encoder()) return pass.encoder != nullptr;
    return stack <= main_ || pass.wants == Wants::loss;
  }
  /// Returns the microbatch of a pass as a stack reads it. In generation an encoder has its own.
  MicrobatchView viewed(std::size_t stack, const Pass& pass) const {
    const auto& view = spec_.stacks[stack].view;
    if (pass.caches != nullptr && has_encoder())
      return MicrobatchView(stack == main_ ? pass.microbatch : *pass.encoder);
    return view ? MicrobatchView(view(pass.microbatch)) : MicrobatchView(pass.microbatch);
  }
  /// Returns the first stack with the input of `stack`.
  const Stack& first_of_input(const Stack& stack) const {
    return *std::ranges::find(stacks_, stack.input, &Stack::input);
  }
  /// Returns the first stack with the layers of `stack`.
  const Stack& first_of_name(const Stack& stack) const {
    return *std::ranges::find(stacks_, stack.block, &Stack::block);
  }
  const Chunk& chunk(std::int64_t index) const { return chunks_[static_cast<std::size_t>(index)]; }

  /// Returns what a stage has of each stack, and appends its layers, by their index in the stack's
  /// configuration, to those of this rank.
  std::vector<StackPart> parts_of(const StageLayers& stage,
                                  std::vector<std::vector<std::int64_t>>& layers) const {
    std::vector<StackPart> parts;
    const std::int64_t first = stage.first_layer, last = first + stage.num_layers;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < spec_.stacks.size(); ++i) {
      const StackSpec& spec = spec_.stacks[i];
      const std::int64_t end = begin + spec.size();
      const std::int64_t from = std::max(first, begin), to = std::max(from, std::min(last, end));
      const bool is_first = i == 0, is_last = i + 1 == spec_.stacks.size() && !spec.only_for_loss;
      const StackPart part{.stack = i,
                           .has_input = is_first ? stage.has_embedding : from == begin && to > from,
                           .begin = std::ssize(layers[i]),
                           .num_layers = to - from,
                           .has_end = is_last ? stage.has_output : to == end && to > from};
      for (std::int64_t layer = from; layer < to; ++layer)
        layers[i].push_back(spec.first_layer + layer - begin);
      if (part.has_input || part.num_layers > 0 || part.has_end) parts.push_back(part);
      begin = end;
    }
    return parts;
  }

  PartArguments arguments(const TransformerConfig& config, const MakeModelOptions& options) {
    return {.parent = this,
            .config = config,
            .rank = rank_,
            .vocab_pad_multiple = options.vocab_pad_multiple,
            .ends = ends_,
            .embeddings = embeddings_};
  }

  Stack make_stack(std::size_t index, const std::vector<std::int64_t>& layers,
                   const MakeModelOptions& options) {
    const StackSpec& spec = spec_.stacks[index];
    const auto has = [&](bool StackPart::*member) {
      return std::ranges::any_of(chunks_, [&](const Chunk& chunk) {
        return std::ranges::any_of(chunk.parts, [&](const StackPart& part) {
          return part.stack == index && part.*member;
        });
      });
    };
    ActivationPlan plan;  // of the layers of the stack's configuration
    if (options.activations != nullptr) plan = *options.activations;
    std::int64_t before = -spec.first_layer;
    for (std::size_t i = 0; i < index; ++i) before += spec_.stacks[i].size();
    if (!plan.layers.empty() && before > 0)
      plan.layers.erase(plan.layers.begin(), plan.layers.begin() + before);
    Stack stack;
    if (has(&StackPart::has_input))
      stack.input = spec.shares_input && stacks_.front().input != nullptr
                        ? stacks_.front().input
                        : std::shared_ptr<Input>(spec.input(arguments(spec.config, options)));
    for (std::size_t i = 0; i < index && !stack.block; ++i)
      if (spec_.stacks[i].name == spec.name) stack.block = stacks_[i].block;
    if (!stack.block)
      stack.block = std::make_shared<TransformerBlock>(this, spec.name, spec.layers,
                                                       LayerArguments{.config = spec.config,
                                                                      .rank = rank_,
                                                                      .layers_before = before,
                                                                      .causal = spec.causal,
                                                                      .activations = &plan},
                                                       layers, has(&StackPart::has_end));
    if (spec.config.has_rotary()) stack.rotary = rotary_frequencies(spec.config);
    if (stack.rotary && spec.config.rotary_base_local)
      stack.local_rotary = local_rotary_frequencies(spec.config);
    return stack;
  }

  at::Tensor run_part(const StackPart& part, at::Tensor hidden_sbh, const Pass& pass,
                      const at::Tensor& positions, ForwardContext& context) {
    Stack& stack = stacks_[part.stack];
    // Hooks see the layers of a name once: in forward at their first use, in backward at their
    // last.
    context.hooks = &first_of_name(stack) == &stack ? unit_hooks_ : nullptr;
    std::tie(context.rotary_cos, context.rotary_sin) = tables(stack.rotary, positions);
    std::tie(context.local_cos, context.local_sin) = tables(stack.local_rotary, positions);
    const StackSpec& spec = spec_.stacks[part.stack];
    context.query_factor = query_factor(spec.config, positions);
    if (part.has_input) {
      ForwardContext of_input = context;
      if (spec.shares_input) of_input.seed = philox_key(context.seed, spec.name);  // of dropout
      if (&first_of_input(stack) != &stack) of_input.hooks = nullptr;
      hidden_sbh = run_unit(of_input.hooks, *stack.input, {}, [&](const at::Tensor&) {
        return stack.input->forward(pass.microbatch, positions, of_input);
      });
    }
    context.relative_bias =
        stack.positions ? stack.positions->forward(context.num_positions()) : at::Tensor();
    const std::vector<at::Tensor> shared = shared_tensors(context);
    share_saved_tensors(shared);
    std::optional<OffloadPass> offload;
    if (offload_store_ != nullptr && context.training)
      context.offload = &offload.emplace(
          *offload_store_,
          OffloadPass::Options{.min_elements = smallest_offloaded_, .shared = shared});
    hidden_sbh = stack.block->forward(hidden_sbh, context, part.begin, part.num_layers);
    context.offload = nullptr;
    if (!part.has_end) return hidden_sbh;
    hidden_sbh = stack.block->finish(hidden_sbh, context);
    if (part.stack + 1 < stacks_.size())
      context.publish(spec_.stacks[part.stack].published_name(), hidden_sbh);
    return hidden_sbh;
  }

  /// Returns what a pass wants of the last stage.
  StageOutput output(const at::Tensor& hidden_sbh, const Pass& pass,
                     const ForwardContext& context) const {
    switch (pass.wants) {
      case Wants::loss: {
        std::vector<const Head*> heads;
        for (const auto& head : heads_) heads.push_back(head.get());
        StepOutput output = sum_of_heads(heads, hidden_sbh, pass.microbatch, context,
                                         announced_gradient(pass.microbatch));
        notify_op(unit_hooks_, *this, "loss", output.root);
        return {.loss = std::move(output)};
      }
      case Wants::token_losses:
        return {.result = heads_.front()
                              ->loss(hidden_sbh, pass.microbatch, context,
                                     announced_gradient(pass.microbatch))
                              .token_losses.to(at::kFloat)};
      case Wants::last_logits: {
        const std::vector<std::int64_t> shape = result_shape(pass);
        if (shape.front() == 0 || heads_.empty())
          return {.result = at::empty(shape, hidden_sbh.options().dtype(at::kFloat))};
        return {.result = heads_.front()
                              ->logits(last_rows(hidden_sbh, pass, pass.num_logits, context))
                              .reshape(shape)};
      }
      case Wants::logits:
        return {.result = heads_.front()->logits(hidden_sbh)};
      case Wants::hidden:
        return {.result = hidden_sbh.transpose(0, 1).to(at::kFloat)};
    }
    throw InternalError("a pass wants nothing");
  }

  /// Returns the tensors of a pass that all layers read; some may be undefined.
  static std::vector<at::Tensor> shared_tensors(const ForwardContext& context) {
    return {context.tokens,
            context.rotary_cos,
            context.rotary_sin,
            context.document_ids,
            context.encoder_document_ids,
            context.relative_bias,
            context.local_cos,
            context.local_sin,
            context.sample_ordinals,
            context.row_positions.each,
            context.row_positions.sequences,
            context.row_positions.ordinals,
            context.row_positions.padding};
  }

  /// On a rank with the whole model, backward follows forward immediately. Heads of stacks that are
  /// only for the loss contribute to the same weight before it.
  LossGradient announced_gradient(const Microbatch& microbatch) const {
    if (!microbatch.has("loss_gradient")) return {};
    return {.value = microbatch.at("loss_gradient"),
            .accumulates_in_forward = chunks_.size() == 1 && chunk(0).stage.has_embedding &&
                                      chunk(0).stage.has_output && main_ + 1 == stacks_.size()};
  }

  /// Returns rotary tables of s rows when all samples share their positions [1 or b, s], else of
  /// s·b rows.
  std::pair<at::Tensor, at::Tensor> tables(std::optional<RotaryFrequencies>& rotary,
                                           const at::Tensor& positions) {
    if (!rotary) return {};
    if (rotary->inverse.device() != positions.device())
      rotary->inverse = rotary->inverse.to(positions.device());
    const RotaryTables result =
        rotary_tables(*rotary, positions.t().reshape({-1}), compute_type(params_dtype()));
    return {result.cos, result.sin};
  }

  /// Returns the factors of --attn-temperature-scale. The logarithm is taken in double: in float32
  /// its last bit depends on how many positions are computed together.
  at::Tensor query_factor(const TransformerConfig& config, const at::Tensor& positions) const {
    if (config.attn_temperature_scale == 0) return {};
    const int first = config.attn_temperature_all_layers ? 0 : 1;
    const at::Tensor group =
        ((positions.t().to(at::kFloat) + first) / config.attn_temperature_floor).floor();
    return (group.to(at::kDouble).log1p() * config.attn_temperature_scale + 1)
        .to(compute_type(params_dtype()))
        .unsqueeze(-1)
        .unsqueeze(-1);
  }

  /// Returns the dtype of the model's weights.
  c10::ScalarType params_dtype() const { return weight_ != nullptr ? weight_->dtype() : dtype_; }

  /// Returns what passes between layer `border` - 1 of the model and layer `border`.
  Border border_at(std::int64_t border) const {
    std::size_t index = 0;  // the stack of the border; an end belongs to the stack that ends there
    for (; index + 1 < spec_.stacks.size() && border > spec_.stacks[index].size(); ++index)
      border -= spec_.stacks[index].size();
    const StackSpec& stack = spec_.stacks[index];
    // Behind post-norm layers the residual is what a norm returns, in the dtype of the weights.
    const bool is_end = border == stack.size(), has_next = index + 1 < spec_.stacks.size(),
               is_fp32 = stack.config.fp32_residual_connection &&
                         (border == 0 || stack.config.norm_placement != NormPlacement::post),
               is_normed = is_end && (has_next || stack.only_for_loss);
    Border found{{{"hidden", {stack.config.hidden_size}}, index, is_fp32 && !is_normed}};
    std::vector<std::int64_t>& row = found.front().row_shape;
    if (stack.num_streams > 1) row.insert(row.begin(), stack.num_streams);
    for (PublishedTensor& tensor :
         published_across(stack.layers, stack.config, stack.first_layer + border))
      found.push_back({std::move(tensor), index, is_fp32});
    // What the stacks in front of the border return, for the layers of later ones.
    if (is_end && has_next) ++index;
    for (std::size_t i = 0; i < index; ++i)
      found.push_back(
          {{spec_.stacks[i].published_name(), {spec_.stacks[i].config.hidden_size}}, i});
    return found;
  }

  /// Returns whether a tensor of a border is read by stacks and heads that are only for the loss.
  bool is_only_for_loss(const std::string& key) const {
    return std::any_of(spec_.stacks.begin() + static_cast<std::ptrdiff_t>(main_),
                       spec_.stacks.end(),
                       [&](const StackSpec& stack) { return stack.published_name() == key; });
  }

  /// Returns the tensors of a border in a pass, with sequence parallelism those of this rank's
  /// slice.
  std::vector<ActivationSpec> specs_of(const Border& border, const Pass& pass) const {
    std::vector<ActivationSpec> specs;
    for (const PassedTensor& tensor : border) {
      if (pass.wants != Wants::loss && is_only_for_loss(tensor.key)) continue;
      const at::Tensor tokens = (*viewed(tensor.stack, pass)).at("tokens");
      const std::int64_t rows =
          tokens.size(1) / (is_sequence_parallel(pass, rank_) ? rank_.tp.size : 1);
      std::vector<std::int64_t> shape{rows, tokens.size(0)};
      shape.insert(shape.end(), tensor.row_shape.begin(), tensor.row_shape.end());
      const auto dtype = tensor.is_fp32 ? compute_type(params_dtype()) : params_dtype();
      specs.push_back({tensor.key, std::move(shape), dtype});
    }
    return specs;
  }

  const TransformerConfig config_;
  const Rank rank_;
  const ModelSpec spec_;
  std::vector<Chunk> chunks_;
  StageHolders ends_, embeddings_;              ///< PartArguments
  std::size_t main_ = spec_.stacks.size() - 1;  ///< the last stack that is not only for the loss
  std::vector<Stack> stacks_;
  std::vector<std::unique_ptr<Head>> heads_;
  const c10::ScalarType dtype_;
  OffloadStore* const offload_store_;  ///< null: activations stay
  const std::int64_t smallest_offloaded_;
  const Parameter* weight_ = nullptr;  ///< any weight; null on a rank that holds none
};

}  // namespace

StageHolders stage_holders(const PipelineLayout& layout, std::int64_t pipeline_rank,
                           const std::function<bool(const StageLayers&)>& declares) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t stage = 0; stage < std::ssize(layout.stages); ++stage) {
    if (declares(layout.stages[static_cast<std::size_t>(stage)]))
      ranks.push_back(rank_of(layout.order, layout.num_ranks, stage));
  }
  const bool is_owner = ranks.empty() || ranks.front() == pipeline_rank;
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  return {.ranks = std::move(ranks), .is_owner = is_owner};
}

std::unique_ptr<Model> make_model(ModelSpec spec, const TransformerConfig& config, const Rank& rank,
                                  const MakeModelOptions& options) {
  MEGATRON_CHECK(config.num_layers > 0 && config.hidden_size > 0 && config.vocab_size > 0 &&
                     config.kv_channels > 0 && config.ffn_hidden_size > 0,
                 "the config is not resolved: ", config.num_layers, " layers, hidden size ",
                 config.hidden_size, ", ffn_hidden_size ", config.ffn_hidden_size);
  return std::make_unique<TransformerModel>(std::move(spec), config, rank, options);
}

}  // namespace megatron
