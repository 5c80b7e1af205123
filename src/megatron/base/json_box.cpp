#include "megatron/base/json_box.h"

#include <nlohmann/json.hpp>

namespace megatron {

void JsonBox::Delete::operator()(Json* value) const { delete value; }

JsonBox::JsonBox() : value_(new Json()) {}
JsonBox::JsonBox(const Json& value) : value_(new Json(value)) {}
JsonBox::JsonBox(const JsonBox& other) : value_(new Json(*other)) {}
JsonBox& JsonBox::operator=(const JsonBox& other) {
  if (this != &other) value_.reset(new Json(*other));
  return *this;
}
JsonBox::~JsonBox() = default;

}  // namespace megatron
