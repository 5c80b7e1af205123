// Identifies a member of a settings struct at run time, so that its table entry can be found.
#pragma once

#include <cstddef>
#include <typeindex>
#include <typeinfo>

namespace megatron {

/// A struct and the offset of one of its members in bytes.
struct MemberKey {
  std::type_index owner = typeid(void);
  std::ptrdiff_t offset = 0;
  bool operator==(const MemberKey&) const = default;
};

template <class T, class V>
MemberKey member_key(V T::*member) {
  static const T object{};
  return {typeid(T), reinterpret_cast<const char*>(&(object.*member)) -
                         reinterpret_cast<const char*>(&object)};
}

}  // namespace megatron
