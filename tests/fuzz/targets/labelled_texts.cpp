// Labelled texts. The input is JSON lines, and a table, of texts with classes and with choices.
#include "megatron/datasets/labelled_texts.h"

#include <algorithm>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/error.h"
#include "megatron/config/data_config.h"

namespace megatron::fuzz {

void parse_labelled_texts(std::string_view input) {
  for (const char* name : {"texts.jsonl", "texts.tsv"}) {
    const std::string path = write_input(name, input);
    for (const FinetuneTask task : {FinetuneTask::classify, FinetuneTask::rank}) {
      DataConfig config;
      config.task = task;
      config.train_data_path = {path};
      try {
        const LabelledData data = read_labelled_data(config);
        for (const LabelledText& text : *data.files.at(path))
          require(text.number >= 0 && text.number < std::max(data.num_classes, data.num_choices),
                  "a label has no class");
      } catch (const UserError& error) {
        require(std::string(error.what()).find(path) != std::string::npos, "no file is named");
      }
    }
  }
}

}  // namespace megatron::fuzz
