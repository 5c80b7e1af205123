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

/// Each character of a text with tags that is no part of a tag is found at its own place.
TEST(ImageTags, LeaveThePlacesOfTheText) {
  const ImageTags tags = image_tags("internvl");
  const std::string text = "a<image><image>bc<image>";
  const std::string tagged = tags.add_to(text);
  std::size_t before = 0;
  for (std::size_t place = 0; place <= tagged.size(); ++place) {
    const std::size_t found = tags.place_without(text, place);
    EXPECT_GE(found, before) << place;
    EXPECT_LE(found, text.size()) << place;
    before = found;
  }
  EXPECT_EQ(before, text.size());
  for (std::size_t at = tagged.find("<image>"); at != std::string::npos;
       at = tagged.find("<image>", at + 1))
    EXPECT_EQ(text.substr(tags.place_without(text, at), 7), "<image>") << at;
  EXPECT_EQ(text[tags.place_without(text, tagged.find('b'))], 'b');
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

TEST_F(MultimodalTokenizers, GiveTagsThePlaceOfTheirImagesEnd) {
  const auto tokenizer = open("MultimodalTokenizer", "internvl");
  EXPECT_THAT(tokenizer->encode("b <image>b"), ElementsAre(1, 3, 2, 4, 1));
  std::vector<std::array<std::size_t, 2>> places;
  for (const TokenSpan& span : tokenizer->encode_with_spans("b <image>b"))
    places.push_back({span.begin, span.end});
  using Place = std::array<std::size_t, 2>;
  EXPECT_THAT(places,
              ElementsAre(Place{0, 1}, Place{2, 2}, Place{2, 9}, Place{9, 9}, Place{9, 10}));
}

TEST_F(MultimodalTokenizers, AloneReadTheirFlags) {
  EXPECT_THAT(message_of([&] { open("HuggingFaceTokenizer", "nvlm"); }),
              HasSubstr("--image-tag-type has an effect only with MultimodalTokenizer"));
}

}  // namespace
}  // namespace megatron
