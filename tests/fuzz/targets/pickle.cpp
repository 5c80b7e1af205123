// Python's pickles. The input is the pickle; its values are visited to some depth.
#include "megatron/formats/pickle.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"

namespace megatron::fuzz {
namespace {

/// Visits at most `visits` values, also those of cycles.
void visit(const PickleValue& value, int& visits) {
  if (--visits < 0) return;
  require(!value.description().empty(), "a value has no description");
  value.find("a");
  for (const PickleValue& part : {value.callable(), value.args(), value.keywords(), value.state(),
                                  value.appended(), value.persistent_id()})
    if (!part.is(PickleKind::none)) visit(part, visits);
  if (value.is(PickleKind::list) || value.is(PickleKind::tuple) || value.is(PickleKind::set))
    for (const PickleValue& item : value.items("it")) visit(item, visits);
  if (value.is(PickleKind::dict))
    for (const auto& [key, item] : value.entries("it")) {
      visit(key, visits);
      visit(item, visits);
    }
}

}  // namespace

void parse_pickle(std::string_view input) {
  const Pickle pickle(input, "a.pkl", 1'000'000);
  require(pickle.num_bytes() <= input.size(), "the pickle is longer than its file");
  int visits = 1000;
  visit(pickle.root(), visits);
}

}  // namespace megatron::fuzz
