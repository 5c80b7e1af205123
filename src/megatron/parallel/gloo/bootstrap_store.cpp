#include "megatron/parallel/gloo/bootstrap_store.h"

#include <algorithm>
#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

namespace megatron {

using std::chrono::milliseconds;

BootstrapStore::BootstrapStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix,
                               milliseconds timeout)
    : store_(std::move(store)), prefix_(std::move(prefix)), timeout_(timeout) {}

BootstrapStore::~BootstrapStore() = default;

void BootstrapStore::set(const std::string& key, const std::string& text) const {
  store_->set(prefix_ + key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

bool BootstrapStore::has(const std::string& key) const { return store_->check({prefix_ + key}); }

std::string BootstrapStore::get(const std::string& key) const {
  const std::vector<std::uint8_t> bytes = store_->get(prefix_ + key);
  return {bytes.begin(), bytes.end()};
}

bool BootstrapStore::set_if_absent(const std::string& key, const std::string& text) const {
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  return store_->compareSet(prefix_ + key, {}, bytes) == bytes;
}

void BootstrapStore::set_timeout(milliseconds timeout) const { store_->setTimeout(timeout); }

std::int64_t BootstrapStore::add(const std::string& key, std::int64_t amount) const {
  return store_->add(prefix_ + key, amount);
}

std::vector<std::string> BootstrapStore::wait_for(
    const std::string& key, const std::vector<std::int64_t>& ranks, const std::string& what,
    const std::function<std::string()>& find_failure) const {
  std::vector<std::string> texts;
  const auto begin = std::chrono::steady_clock::now();
  milliseconds pause(1);
  for (std::size_t next = 0; next < ranks.size();) {
    const std::string name = key + "/" + std::to_string(ranks[next]);
    if (has(name)) {
      texts.push_back(get(name));
      ++next;
      continue;
    }
    std::string reason = find_failure();
    if (reason.empty() && std::chrono::steady_clock::now() - begin >= timeout_) {
      std::vector<std::int64_t> missing;
      for (std::size_t i = next; i < ranks.size(); ++i) {
        if (!has(key + "/" + std::to_string(ranks[i]))) missing.push_back(ranks[i]);
      }
      reason = name_ranks(missing) + (missing.size() == 1 ? " has" : " have") +
               " not arrived after " + time_text(timeout_);
    }
    if (!reason.empty()) throw CommError(what + ": " + reason);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(20));
  }
  return texts;
}

c10::intrusive_ptr<c10d::Store> BootstrapStore::prefix_store(const std::string& name) const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix_ + name, store_);
}

std::string boot_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string identity;
  std::getline(file, identity);
  return identity;
}

}  // namespace megatron
