// The names of the settings' enum values on the command line and in files.
#pragma once

#include <array>
#include <string_view>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/field_values.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {

template <class E, std::size_t N>
using EnumTable = std::array<std::pair<std::string_view, E>, N>;

template <>
struct EnumNames<Normalization> {
  static constexpr EnumTable<Normalization, 2> value{
      {{"LayerNorm", Normalization::LayerNorm}, {"RMSNorm", Normalization::RMSNorm}}};
};

template <>
struct EnumNames<NormPlacement> {
  static constexpr EnumTable<NormPlacement, 5> value{
      {{"pre", NormPlacement::pre},
       {"post", NormPlacement::post},
       {"sandwich", NormPlacement::sandwich},
       {"output", NormPlacement::output},
       {"output_unless_recurrent", NormPlacement::output_unless_recurrent}}};
};

template <>
struct EnumNames<QkNormScope> {
  static constexpr EnumTable<QkNormScope, 3> value{{{"head", QkNormScope::head},
                                                    {"all_heads", QkNormScope::all_heads},
                                                    {"each_head", QkNormScope::each_head}}};
};

template <>
struct EnumNames<QkNormPlacement> {
  static constexpr EnumTable<QkNormPlacement, 2> value{
      {{"before_rotary", QkNormPlacement::before_rotary},
       {"after_rotary", QkNormPlacement::after_rotary}}};
};

template <>
struct EnumNames<SoftmaxType> {
  static constexpr EnumTable<SoftmaxType, 3> value{{{"vanilla", SoftmaxType::vanilla},
                                                    {"off-by-one", SoftmaxType::off_by_one},
                                                    {"learnable", SoftmaxType::learnable}}};
};

template <>
struct EnumNames<PositionEmbedding> {
  using P = PositionEmbedding;
  static constexpr EnumTable<P, 6> value{{{"learned_absolute", P::learned_absolute},
                                          {"rope", P::rope},
                                          {"yarn", P::yarn},
                                          {"alibi", P::alibi},
                                          {"relative", P::relative},
                                          {"none", P::none}}};
};

template <>
struct EnumNames<Activation> {
  using A = Activation;
  static constexpr EnumTable<A, 6> value{{{"gelu", A::gelu},
                                          {"gelu_tanh", A::gelu_tanh},
                                          {"relu", A::relu},
                                          {"squared_relu", A::squared_relu},
                                          {"silu", A::silu},
                                          {"quick_gelu", A::quick_gelu}}};
};

template <>
struct EnumNames<RopeScaling> {
  using R = RopeScaling;
  static constexpr EnumTable<R, 4> value{
      {{"none", R::none}, {"linear", R::linear}, {"llama3", R::llama3}, {"yarn", R::yarn}}};
};

template <>
struct EnumNames<AttentionVariant> {
  using A = AttentionVariant;
  static constexpr EnumTable<A, 3> value{
      {{"none", A::none}, {"gated_delta_net", A::gated_delta_net}, {"gdn", A::gated_delta_net}}};
};

template <>
struct EnumNames<RouterScore> {
  using R = RouterScore;
  static constexpr EnumTable<R, 3> value{
      {{"softmax", R::softmax}, {"sigmoid", R::sigmoid}, {"sqrtsoftplus", R::sqrtsoftplus}}};
};

template <>
struct EnumNames<LoadBalancing> {
  using L = LoadBalancing;
  static constexpr EnumTable<L, 5> value{{{"aux_loss", L::aux_loss},
                                          {"seq_aux_loss", L::seq_aux_loss},
                                          {"global_aux_loss", L::global_aux_loss},
                                          {"sinkhorn", L::sinkhorn},
                                          {"none", L::none}}};
};

template <>
struct EnumNames<RouterDtype> {
  using R = RouterDtype;
  static constexpr EnumTable<R, 3> value{{{"none", R::none}, {"fp32", R::fp32}, {"fp64", R::fp64}}};
};

template <>
struct EnumNames<TokenDropPolicy> {
  using T = TokenDropPolicy;
  static constexpr EnumTable<T, 2> value{{{"probs", T::probs}, {"position", T::position}}};
};

template <>
struct EnumNames<CpCommType> {
  using T = CpCommType;
  static constexpr EnumTable<T, 5> value{{{"p2p", T::p2p},
                                          {"all_gather", T::all_gather},
                                          {"allgather", T::all_gather},
                                          {"a2a", T::a2a},
                                          {"a2a+p2p", T::a2a_p2p}}};
};

template <>
struct EnumNames<TokenDispatcherType> {
  using T = TokenDispatcherType;
  static constexpr EnumTable<T, 3> value{
      {{"allgather", T::allgather}, {"alltoall", T::alltoall}, {"flex", T::flex}}};
};

template <>
struct EnumNames<LrDecayStyle> {
  using S = LrDecayStyle;
  static constexpr EnumTable<S, 5> value{{{"constant", S::constant},
                                          {"linear", S::linear},
                                          {"cosine", S::cosine},
                                          {"inverse-square-root", S::inverse_square_root},
                                          {"WSD", S::WSD}}};
};

template <>
struct EnumNames<WsdDecayStyle> {
  using S = WsdDecayStyle;
  static constexpr EnumTable<S, 4> value{{{"exponential", S::exponential},
                                          {"linear", S::linear},
                                          {"cosine", S::cosine},
                                          {"minus_sqrt", S::minus_sqrt}}};
};

template <>
struct EnumNames<WeightDecayIncrStyle> {
  using S = WeightDecayIncrStyle;
  static constexpr EnumTable<S, 3> value{
      {{"constant", S::constant}, {"linear", S::linear}, {"cosine", S::cosine}}};
};

template <>
struct EnumNames<FinetuneTask> {
  using T = FinetuneTask;
  static constexpr EnumTable<T, 6> value{{{"none", T::none},
                                          {"classify", T::classify},
                                          {"rank", T::rank},
                                          {"MNLI", T::mnli},
                                          {"QQP", T::qqp},
                                          {"RACE", T::race}}};
};

}  // namespace megatron
