// The names of the settings' enum values on the command line and in files.
#pragma once

#include "megatron/config/field_values.h"
#include "megatron/config/settings.h"

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
  static constexpr EnumTable<NormPlacement, 2> value{
      {{"pre", NormPlacement::pre}, {"post", NormPlacement::post}}};
};

template <>
struct EnumNames<PositionEmbedding> {
  using P = PositionEmbedding;
  static constexpr EnumTable<P, 5> value{{{"learned_absolute", P::learned_absolute},
                                          {"rope", P::rope},
                                          {"yarn", P::yarn},
                                          {"alibi", P::alibi},
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

}  // namespace megatron
