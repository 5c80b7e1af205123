#include "megatron/parallel/rendezvous/c10d_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace megatron {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

class LibTorchStore final : public c10d::Store {
 public:
  explicit LibTorchStore(RunStore store) : Store(store.timeout()), store_(std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<LibTorchStore>(store_);
  }
  void set(const std::string& key, const Bytes& value) override { store_.set(key, text_of(value)); }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& value) override {
    return bytes_of(store_.compare_set(key, text_of(expected), text_of(value)));
  }
  Bytes get(const std::string& key) override {
    wait({key});
    return bytes_of(store_.get_all({key})[0]);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_.add(key, amount);
  }
  bool deleteKey(const std::string& key) override { return store_.remove(key); }
  bool check(const std::vector<std::string>& keys) override { return store_.has_all(keys); }
  std::int64_t getNumKeys() override { return store_.num_keys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, store_.timeout()); }
  void wait(const std::vector<std::string>& keys, const milliseconds& timeout) override {
    for (const std::string& key : keys) {
      if (!store_.poll(key, timeout))
        C10_THROW_ERROR(DistStoreError, key + " was not set in the run's store in time");
    }
  }
  void setTimeout(const milliseconds& timeout) override {
    timeout_ = timeout;
    store_.set_timeout(timeout);
  }
  bool hasExtendedApi() const override { return false; }

 private:
  RunStore store_;
};

}  // namespace

/// NCCL takes the prefix off a PrefixStore for keys that all its groups share.
c10::intrusive_ptr<c10d::Store> make_c10d_store(const RunStore& store, const std::string& prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, c10::make_intrusive<LibTorchStore>(store));
}

}  // namespace megatron
