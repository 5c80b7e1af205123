// Writes Python's pickles of protocol 2, which torch.load takes with weights_only. A value is JSON,
// whose objects become dicts and whose arrays become lists. The functions make what JSON lacks; it
// may stand wherever a value may:
//
//   std::string bytes = pickle_of({{"dtype", pickle_global("torch.float32")}});
#pragma once

#include <string>
#include <string_view>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Returns the pickle of a value. Functions and classes are stored once.
std::string pickle_of(const Json& value);

/// Returns a function or class by its name, such as "torch.float32".
Json pickle_global(std::string_view name);
/// Returns a tuple of the items of an array.
Json pickle_tuple(Json items);
/// Returns a dict with any keys: keys and values alternate in the array.
Json pickle_dict(Json items);
/// Returns the result of a function, called with the items of an array.
Json pickle_call(std::string_view function, Json args);
/// Returns an object of a class, made without a call, which is given `state`.
Json pickle_object(std::string_view name, Json state);
/// Returns what has this persistent id.
Json pickle_persistent_id(Json id);

}  // namespace megatron
