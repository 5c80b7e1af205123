// Ids and conversations are compared with Megatron-LM in tests/datasets/prompt_format_test.cpp.
#include "megatron/tokenizers/multimodal_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/tokenizer_config.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ImageTags, StandAroundEachImage) {
  EXPECT_EQ(image_tags("internvl").add_to("<image>a <image><image"),
            "<img><image></img>a <img><image></img><image");
  EXPECT_EQ(image_tags("nvlm").add_to("<image>"), "<Image><image></Image>");
  EXPECT_EQ(image_tags("").add_to("<image>a"), "<image>a");
  EXPECT_EQ(image_tags("nvlm").add_to(""), "");
}

class MultimodalTokenizers : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const std::string& type, const std::string& tags) {
    TokenizerConfig config;
    config.tokenizer_type = type;
    config.image_tag_type = tags;
    config.tokenizer_special_tokens = {"<image>", "<img>", "</img>"};
    config.tokenizer_model = folder_.write("tokenizer.json", R"({"added_tokens":[],
        "pre_tokenizer":{"type":"Whitespace"},
        "model":{"type":"WordLevel","vocab":{"a":0,"b":1},"unk_token":"a"}})");
    return make_tokenizer(config);
  }
  TemporaryFolder folder_;
};

TEST_F(MultimodalTokenizers, PutTagsAroundImages) {
  const auto tokenizer = open("MultimodalTokenizer", "internvl");
  EXPECT_THAT(tokenizer->encode("b <image>b"), ElementsAre(1, 3, 2, 4, 1));
}

TEST_F(MultimodalTokenizers, AloneReadTheirFlags) {
  EXPECT_THAT(message_of([&] { open("", "nvlm"); }),
              HasSubstr("--image-tag-type has an effect only with MultimodalTokenizer"));
}

}  // namespace
}  // namespace megatron
