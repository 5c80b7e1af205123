// The chat page at `/`: chat.html, one file that needs nothing from outside.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

struct ChatPage {
  std::string_view html;
};

/// Returns the page, which CMake embeds from chat.html.
const ChatPage& chat_page();

/// Returns the headers that the page is served with, beside its type, text/html; charset=utf-8.
std::vector<std::pair<std::string, std::string>> chat_page_headers();

/// Returns the Content-Security-Policy of a page with one inline style and one inline script, which
/// it names by their SHA-256. It allows requests to the page's own server only, and no text becomes
/// markup (Trusted Types).
std::string content_security_policy(std::string_view html);

}  // namespace megatron
