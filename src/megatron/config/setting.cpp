#include "megatron/config/setting.h"

#include <unordered_map>

#include "megatron/base/error.h"
#include "megatron/config/field_values.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

struct KeyHash {
  std::size_t operator()(const MemberKey& key) const {
    return key.owner.hash_code() ^ static_cast<std::size_t>(key.offset);
  }
};

const Field* find_field(const MemberKey& key) {
  static const auto fields = [] {
    std::unordered_map<MemberKey, const Field*, KeyHash> all;
    for (const Field& field : settings_table().set().fields) all.emplace(field.member, &field);
    return all;
  }();
  const auto found = fields.find(key);
  MEGATRON_CHECK(found != fields.end(), "no setting is stored in this member of ", key.owner.name(),
                 ", at byte ", key.offset);
  return found->second;
}

}  // namespace

Setting::Setting(const MemberKey& key) : field_(find_field(key)) {}

const std::string& Setting::name() const { return field_->name; }

std::string Setting::flag() const { return field_->flag(); }

bool Setting::is_on_by_default() const { return !field_->off_flags.empty(); }

bool Setting::is_given(const Settings& settings) const {
  return field_->get(&settings) != field_->default_values;
}

std::string Setting::value(const Settings& settings) const {
  return join_values(field_->get(&settings));
}

std::optional<double> Setting::number(const Settings& settings) const {
  const bool is_number =
      (field_->kind == ValueKind::integer || field_->kind == ValueKind::number) && !field_->is_list;
  const std::vector<std::string> values = field_->get(&settings);
  return is_number && !values.empty() ? std::optional(number_value(values[0])) : std::nullopt;
}

}  // namespace megatron
