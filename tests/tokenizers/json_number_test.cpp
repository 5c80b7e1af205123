// Checks how numbers are read against tokenizers 0.23.3: Tokenizer.from_str() of a Unigram model
// with these scores, and the doubles in its to_str(). Those named in the second test are not the
// nearest ones.
#include "megatron/tokenizers/hugging_face/json_number.h"

#include <gtest/gtest.h>

#include <cmath>

#include "megatron/base/files.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "tokenizers/helpers.h"

namespace megatron {
namespace {

using hugging_face::read_json_number;

TEST(JsonNumber, ReadsAllSpellings) {
  EXPECT_EQ(read_json_number("0"), 0);
  EXPECT_TRUE(std::signbit(read_json_number("-0")));
  EXPECT_EQ(read_json_number("1"), 1);
  EXPECT_EQ(read_json_number("-1.5"), -1.5);
  EXPECT_EQ(read_json_number("1e3"), 1000);
  EXPECT_EQ(read_json_number("1E+3,"), 1000);
  EXPECT_EQ(read_json_number("-2.5E-3"), -0x1.47ae147ae147bp-9);
  EXPECT_EQ(read_json_number("123456789012345678901234567890"), 0x1.8ee90ff6c373ep+96);
  EXPECT_EQ(read_json_number("18446744073709551615"), 0x1p+64);
  EXPECT_EQ(read_json_number("12345678901234567890.5e2"), 0x1.0bb448ec2f608p+70);
  EXPECT_EQ(read_json_number("18446744073709551619.1e-279"), 0x1.226ed86db3332p-863);
  EXPECT_EQ(read_json_number("179769313486231579e291"), 0x1.fffffffffffffp+1023);
  EXPECT_TRUE(std::isinf(read_json_number("1.7976931348623158e308")));  // the package refuses it
  EXPECT_EQ(read_json_number("0.1234567890123456789012345"), 0x1.f9add3746f65fp-4);
  EXPECT_EQ(read_json_number("0.00000000000000000000000012345678901"), 0x1.31aa094dee6dap-83);
  EXPECT_EQ(read_json_number("1.7976931348623157e308"), 0x1.fffffffffffffp+1023);
  EXPECT_EQ(read_json_number("1e-320"), 0x0.00000000007e8p-1022);
  EXPECT_EQ(read_json_number("3e-400"), 0);
  EXPECT_EQ(read_json_number("3e-99999999999999999999"), 0);
}

TEST(JsonNumber, RoundsTwice) {
  EXPECT_EQ(read_json_number("-9.102851321314299"), -0x1.234a8edaaca66p+3);
  EXPECT_EQ(read_json_number("-11.645309025231821"), -0x1.74a65f1ce5e5dp+3);
  EXPECT_EQ(read_json_number("-9.982514720295393"), -0x1.3f70c2b5f03bcp+3);
}

/// The package's tokens. With the nearest doubles "hhh", "h" would have the higher sum.
TEST(JsonNumber, DecidesBetweenSegmentations) {
  const TemporaryFolder folder;
  for (const char* end : {"}", ",\"vocab\\u0000\":0}"}) {  // the second is read as a whole
    write_file(folder.path() / "tokenizer.json",
               std::string(R"({"pre_tokenizer":null,"model":{"type":"Unigram","unk_id":0,)"
                           R"("vocab":[["<unk>",0.0],["owees",-3.3148955951853614],)"
                           R"(["d",-1.7067643049268075],["h",-1.8215559233657561],)"
                           R"(["hhh",-3.718179474059184]])") +
                   end + "}");
    const auto tokenizer =
        testing::open({.tokenizer_model = (folder.path() / "tokenizer.json").string()});
    EXPECT_EQ(tokenizer->encode("oweesdhhhh"), (std::vector<std::int32_t>{1, 2, 3, 4})) << end;
  }
}

TEST(JsonNumber, IsRefusedWhereTheResultIsInfinite) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("tokenizer.json", R"({"added_tokens":[],"model":{"type":"Unigram","unk_id":0,)"
                                     R"("vocab":[["a",0],["b",1.7976931348623158e308]]}})");
  EXPECT_EQ(message_of([&] { testing::open({.tokenizer_model = file}); }),
            file + ": model.vocab[1]: the score is out of range");
}

}  // namespace
}  // namespace megatron
