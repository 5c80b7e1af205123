#include "megatron/base/json_value.h"

#include <nlohmann/json.hpp>

namespace megatron {

template <class T>
BasicJsonValue<T>::BasicJsonValue() : value_(std::make_shared<T>()) {}
template <class T>
BasicJsonValue<T>::BasicJsonValue(const T& value) : value_(std::make_shared<T>(value)) {}
template <class T>
BasicJsonValue<T>::BasicJsonValue(const BasicJsonValue& other) : BasicJsonValue(*other) {}
template <class T>
BasicJsonValue<T>& BasicJsonValue<T>::operator=(const BasicJsonValue& other) {
  if (this != &other) value_ = std::make_shared<T>(*other);
  return *this;
}

template class BasicJsonValue<Json>;
template class BasicJsonValue<OrderedJson>;

}  // namespace megatron
