// The headers of the chat page. chat_page_test.py opens the page itself in a browser.
#include "megatron/server/page/chat_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The digests are those of `printf TEXT | openssl dgst -sha256 -binary | base64`.
TEST(ChatPage, NamesItsScriptAndStyleByDigest) {
  EXPECT_EQ(content_security_policy("<style>a{}</style><script>alert('Hello, world.');</script>"),
            "default-src 'none'; "
            "script-src 'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='; "
            "style-src 'sha256-X1RutGBrXCt9KkSaXMK7tHftWiRscFHOhxsS8tv8hBk='; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'");
}

TEST(ChatPage, IsEmbeddedWhole) {
  const std::string page(chat_page().html);
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
  EXPECT_EQ(chat_page_headers().front().first, "Content-Security-Policy");
}

// The policy forbids all of these; the page must not depend on them.
TEST(ChatPage, NeedsNothingFromOutside) {
  const std::string page(chat_page().html);
  for (const char* forbidden : {"innerHTML", "insertAdjacentHTML", "document.write", "eval(",
                                "<script src", "@import", " style=\"", " onclick=\""})
    EXPECT_THAT(page, Not(HasSubstr(forbidden)));
}

}  // namespace
}  // namespace megatron
