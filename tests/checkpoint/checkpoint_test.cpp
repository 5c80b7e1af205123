#include "megatron/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/tiny_run.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/inspect.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

void expect_equal(const TinyRun& left, const TinyRun& right) {
  const auto a = left.tensors(), b = right.tensors();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

void overwrite(const fs::path& path, std::size_t at, char value) {
  std::string content = read_file(path);
  content.at(at) = value;
  write_file_atomically(path, content);
}

TEST(Checkpoint, RestoresEveryBit) {
  const TemporaryFolder root;
  const TinyRun saved(3);
  save_checkpoint(root.path(), saved.request(12));
  EXPECT_EQ(read_file(root / kTrackerFile), "12");
  TinyRun loaded(4);
  const auto source = find_checkpoint(root.path());
  ASSERT_TRUE(source);
  EXPECT_FALSE(source->is_release);
  EXPECT_EQ(source->iteration, 12);
  load_weights(*source, *loaded.store);
  load_optimizer(*source, *loaded.optimizer);
  expect_equal(saved, loaded);
  EXPECT_EQ(loaded.optimizer->num_steps(), 3);
  EXPECT_EQ(source->manifest->progress, saved.request(12).progress);
}

TEST(Checkpoint, SavesNoVocabularyPadding) {
  const TemporaryFolder root;
  const SafetensorsFile file(save_checkpoint(root.path(), TinyRun(1).request(1)) /
                             "weights_00000.safetensors");
  EXPECT_EQ(file.find("embedding.word_embeddings.weight")->shape, (Shape{19, 16}));
}

TEST(Checkpoint, ReplacesAnIterationAndRemovesWhatInterruptedWritersLeft) {
  const TemporaryFolder root;
  save_checkpoint(root.path(), TinyRun(1).request(5));
  fs::create_directories(root / "iter_0000006.tmp-elsewhere-1");
  const TinyRun second(2);
  save_checkpoint(root.path(), second.request(5));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root.path()))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("iter_0000005", kTrackerFile));
  TinyRun loaded(3);
  load_weights(*find_checkpoint(root.path()), *loaded.store);
  EXPECT_TRUE(loaded.tensors()[0].equal(second.tensors()[0]));
}

TEST(Checkpoint, RefusesASecondWriter) {
  const TemporaryFolder root;
  const FolderLock lock(root.path());
  expect_user_error([&] { save_checkpoint(root.path(), TinyRun(1).request(1)); },
                    {"another run", root.path().string(), "process " + std::to_string(::getpid())});
}

TEST(Checkpoint, AcceptsTheCallersLock) {
  const TemporaryFolder root;
  const FolderLock lock(root.path());
  const TinyRun run(1);
  SaveRequest request = run.request(1);
  request.lock = &lock;
  save_checkpoint(root.path(), request);
  EXPECT_TRUE(lock.is_in_place());
  EXPECT_EQ(find_checkpoint(root.path())->iteration, 1);
}

TEST(Checkpoint, ANewFolderMayEndInASlash) {
  const TemporaryFolder root;
  fs::create_directories(root / "new.tmp-elsewhere-1");
  fs::last_write_time(root / "new.tmp-elsewhere-1",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  begin_new_folder(root / "new/", 1).commit();
  EXPECT_TRUE(fs::is_directory(root / "new"));
  EXPECT_FALSE(fs::exists(root / "new.tmp-elsewhere-1"));
}

TEST(Checkpoint, ChecksFreeSpaceFirst) {
  expect_user_error([] { require_free_space("/", std::uint64_t{1} << 60); },
                    {"free space", "1152921504607895552"});
}

TEST(Checkpoint, FindsNothingInMissingEmptyAndUncommittedFolders) {
  const TemporaryFolder root;
  EXPECT_FALSE(find_checkpoint(root / "missing"));
  EXPECT_FALSE(find_checkpoint(root.path()));
  fs::create_directories(root / "iter_0000006.tmp-host-1");
  write_file_atomically(root / "metrics.jsonl", "{}");
  write_file_atomically(root / (std::string(kTrackerFile) + ".tmp.12"), "6");
  EXPECT_FALSE(find_checkpoint(root.path()));
}

TEST(Checkpoint, ChoosesTheIteration) {
  const TemporaryFolder root;
  const TinyRun run(1);
  for (const std::int64_t iteration : {5, 7, 9})
    save_checkpoint(root.path(), run.request(iteration));
  EXPECT_EQ(find_checkpoint(root.path())->iteration, 9);
  EXPECT_EQ(find_checkpoint(root.path(), 7)->iteration, 7);
  EXPECT_EQ(find_checkpoint(root / "iter_0000005")->iteration, 5);
  write_file_atomically(root / kTrackerFile, " 5\n");
  EXPECT_EQ(find_checkpoint(root.path())->iteration, 5);
  fs::remove(root / kTrackerFile);
  EXPECT_EQ(find_checkpoint(root.path())->iteration, 9);
  expect_user_error([&] { find_checkpoint(root.path(), 6); }, {"--ckpt-step 6", "5, 7, 9"});
  EXPECT_EQ(find_checkpoint(root / "iter_0000005", 5)->iteration, 5);
  expect_user_error([&] { find_checkpoint(root / "iter_0000005", 7); },
                    {"--ckpt-step 7", "iter_0000005 is a checkpoint of iteration 5"});
}

TEST(Checkpoint, NamesABrokenTracker) {
  const TemporaryFolder root;
  save_checkpoint(root.path(), TinyRun(1).request(5));
  for (const char* text : {"", "x", "-3", "5 6", "99999999999999999999", "\xff", "1e3"}) {
    write_file_atomically(root / kTrackerFile, text);
    expect_user_error([&] { find_checkpoint(root.path()); }, {kTrackerFile}, text);
  }
  write_file_atomically(root / kTrackerFile, "8");
  expect_user_error([&] { find_checkpoint(root.path()); }, {kTrackerFile, "iter_0000008", "5"});
}

TEST(Checkpoint, RefusesOtherFolders) {
  const TemporaryFolder root;
  write_file_atomically(root / "notes.txt", "x");
  expect_user_error([&] { find_checkpoint(root.path()); }, {root.path().string(), "neither"});
  expect_user_error([&] { find_checkpoint(root / "notes.txt"); }, {"notes.txt"});
  fs::create_directories(root / "iter_0000003");
  write_file_atomically(root / "iter_0000003/metadata.json", "{}");
  write_file_atomically(root / kTrackerFile, "3");
  expect_user_error([&] { find_checkpoint(root.path()); }, {"metadata.json", "sharded_backend"});
  write_file_atomically(root / "config.json", R"({"model_type":"llama"})");
  fs::remove_all(root / "iter_0000003");
  fs::remove(root / kTrackerFile);
  expect_user_error([&] { find_checkpoint(root.path()); }, {"config.json", "is missing"});
}

TEST(Checkpoint, NamesDamagedDataBeforeUsingIt) {
  const TemporaryFolder root;
  const fs::path folder = save_checkpoint(root.path(), TinyRun(1).request(5));
  const fs::path weights = folder / "weights_00000.safetensors";
  overwrite(weights, fs::file_size(weights) - 1, '\x7f');
  TinyRun loaded(2);
  const auto source = find_checkpoint(root.path());
  expect_user_error([&] { load_weights(*source, *loaded.store); },
                    {"weights_00000.safetensors", "output_layer.weight", "checksum"});
  const auto errors = verify_folder(folder);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_THAT(errors[0], testing::HasSubstr("output_layer.weight"));
  std::ostringstream out;
  expect_user_error([&] { verify_checkpoints(root.path(), false, out); },
                    {"damaged", "output_layer.weight"});
  fs::resize_file(weights, fs::file_size(weights) / 2);
  EXPECT_THAT(verify_folder(folder)[0], testing::HasSubstr("weights_00000.safetensors"));
  fs::remove(folder / "optimizer_00000.safetensors");
  EXPECT_EQ(verify_folder(folder).size(), 2u);
}

// The file stays valid for every reader of safetensors; only checksums can detect the change.
TEST(Checkpoint, NamesADamagedHeader) {
  const TemporaryFolder root;
  const fs::path weights =
      save_checkpoint(root.path(), TinyRun(1).request(5)) / "weights_00000.safetensors";
  const std::size_t at = read_file(weights).find("\"pt\"");
  ASSERT_NE(at, std::string::npos);
  overwrite(weights, at + 1, 'q');
  TinyRun loaded(2);
  expect_user_error([&] { load_weights(*find_checkpoint(root.path()), *loaded.store); },
                    {"weights_00000.safetensors", "header"});
  EXPECT_THAT(verify_folder(root / "iter_0000005"),
              testing::ElementsAre(testing::HasSubstr("checksum of the header")));
}

TEST(Checkpoint, VerifiesEveryIteration) {
  const TemporaryFolder root;
  const TinyRun run(1);
  save_checkpoint(root.path(), run.request(5));
  save_checkpoint(root.path(), run.request(6));
  const fs::path old = root / "iter_0000005/weights_00000.safetensors";
  overwrite(old, fs::file_size(old) - 1, '\x7f');
  std::ostringstream latest, all;
  EXPECT_NO_THROW(verify_checkpoints(root.path(), false, latest));
  expect_user_error([&] { verify_checkpoints(root.path(), true, all); }, {"iter_0000005"});
  EXPECT_THAT(all.str(), testing::HasSubstr("iter_0000006: whole"));
}

TEST(Checkpoint, RefusesAnotherModelAndAnotherOptimizer) {
  const TemporaryFolder root;
  save_checkpoint(root.path(), TinyRun(1).request(5));
  const auto source = find_checkpoint(root.path());
  TransformerConfig wider = tiny_llama(), deeper = tiny_llama(), tied = tiny_llama();
  wider.ffn_hidden_size = 32;
  deeper.num_layers = 3;
  tied.untie_embeddings_and_output_weights = false;
  TinyRun wide(2, wider), deep(2, deeper), tie(2, tied);
  expect_user_error([&] { load_weights(*source, *wide.store); }, {"linear_fc", "shape"});
  expect_user_error([&] { load_weights(*source, *deep.store); }, {"missing", "decoder.layers.2."});
  expect_user_error([&] { load_weights(*source, *tie.store); },
                    {"unexpected: 1\n    output_layer.weight"});
  TinyRun sgd(2, tiny_llama(), "sgd");
  expect_user_error([&] { load_optimizer(*source, *sgd.optimizer); },
                    {"adam", "missing", "momentum_buffer", "unexpected", "exp_avg."});
  TinyRun without(1);
  SaveRequest request = without.request(6);
  request.optimizer = nullptr;
  save_checkpoint(root.path(), request);
  expect_user_error([&] { load_optimizer(*find_checkpoint(root.path()), *without.optimizer); },
                    {"no optimizer state"});
}

/// Returns a checkpoint whose manifest has changed.
CheckpointSource changed(
    CheckpointSource source,
    const std::function<void(std::map<std::string, ManifestTensor>&)>& change) {
  Manifest manifest = *source.manifest;
  change(manifest.tensors);
  source.manifest = std::make_shared<const Manifest>(std::move(manifest));
  return source;
}

TEST(Checkpoint, RefusesANameMoreOrLess) {
  const TemporaryFolder root;
  TinyRun run(1);
  save_checkpoint(root.path(), run.request(5));
  const CheckpointSource source = *find_checkpoint(root.path());
  const std::string weight = "decoder.final_layernorm.weight", state = "exp_avg_sq." + weight;
  const auto refuses = [&](const std::vector<std::string>& words, const auto& change) {
    expect_user_error([&] { load_optimizer(changed(source, change), *run.optimizer); }, words);
  };
  using Tensors = std::map<std::string, ManifestTensor>;
  refuses({"missing: 1\n    " + state, "--no-load-optim", "--finetune"},
          [&](Tensors& tensors) { tensors.erase(state); });
  refuses({"unexpected: 1\n    exp_avg.other"},
          [&](Tensors& tensors) { tensors["exp_avg.other"] = tensors.at(state); });
  refuses({"unexpected: 1\n    router.expert_bias"},
          [&](Tensors& tensors) { tensors["router.expert_bias"] = {.kind = TensorKind::state}; });
  refuses({"missing", "main_param.decoder.layers.0."}, [&](Tensors& tensors) {  // of all but one
    tensors["main_param." + weight] = tensors.at(state);
  });
  const CheckpointSource renamed = changed(source, [](Tensors& tensors) {
    auto table = tensors.extract("embedding.word_embeddings.weight");
    table.key() = "embedding.words.weight";
    tensors.insert(std::move(table));
  });
  expect_user_error([&] { load_weights(renamed, *run.store); },
                    {"missing: 1\n    embedding.word_embeddings.weight",
                     "unexpected: 1\n    embedding.words.weight"});
}

// A process that is killed while it writes leaves the last checkpoint intact.
TEST(Checkpoint, SurvivesAKilledWriter) {
  const TemporaryFolder root;
  const TinyRun run(1);
  save_checkpoint(root.path(), run.request(5));
  for (int delay_us : {200, 1000, 3000, 9000}) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (std::int64_t iteration = 6;; ++iteration)
        save_checkpoint(root.path(), run.request(iteration % 3 + 6));
    }
    ::usleep(static_cast<unsigned>(delay_us));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto source = find_checkpoint(root.path());
    ASSERT_TRUE(source);
    EXPECT_TRUE(verify_folder(source->folder).empty());
  }
}

}  // namespace
}  // namespace megatron
