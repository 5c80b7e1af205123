// Says that the members of nlohmann::json are compiled once, in base/json.cpp. Only precompiled
// headers include this (cmake/precompiled.cmake): it saves each of their users half a second.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
