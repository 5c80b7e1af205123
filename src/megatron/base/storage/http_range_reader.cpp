#include "megatron/base/storage/http_range_reader.h"

#include <httplib.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr double kLongestDelaySeconds = 30;
/// An address that is wrong is reported within seconds.
constexpr std::int64_t kOpeningAttempts = 4;
/// A request that delivers this many bytes before it fails counts as progress.
constexpr std::uint64_t kProgressBytes = 1 << 16;

/// The header `Content-Range: bytes first-last/size`. An object without bytes is answered with
/// `bytes */0`.
struct ContentRange {
  std::uint64_t first = 0, last = 0, size = 0;
};

std::optional<ContentRange> parse_content_range(std::string_view text) {
  const auto number = [&](std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  };
  const auto literal = [&](std::string_view expected) {
    if (!text.starts_with(expected)) return false;
    text.remove_prefix(expected.size());
    return true;
  };
  ContentRange range;
  if (!literal("bytes ")) return std::nullopt;
  if (literal("*/"))
    return number(range.size) && text.empty() ? std::optional(range) : std::nullopt;
  if (!number(range.first) || !literal("-") || !number(range.last) || !literal("/") ||
      !number(range.size) || !text.empty() || range.last < range.first || range.last >= range.size)
    return std::nullopt;
  return range;
}

std::string version_of(const httplib::Response& response) {
  const std::string tag = response.get_header_value("ETag");
  return tag.empty() ? response.get_header_value("Last-Modified") : tag;
}

bool may_pass(int status) { return status == 408 || status == 429 || status >= 500; }

/// What an answer says of the object.
struct ObjectFacts {
  std::uint64_t size = 0;
  std::string version;
};

/// The outcome of one request. `failure` is empty if all bytes came.
struct Outcome {
  std::uint64_t received = 0;
  std::optional<ObjectFacts> facts = {};
  std::string failure = {}, fix = {};
  bool may_retry = true;
};

Outcome failed_for_good(std::string failure, std::string fix) {
  return {.failure = std::move(failure), .fix = std::move(fix), .may_retry = false};
}

Outcome refused(const httplib::Response& response, bool is_s3) {
  const int status = response.status;
  const std::string text = "HTTP status " + std::to_string(status);
  if (may_pass(status))
    return {.failure = text, .fix = "try again later; the server is overloaded"};
  const std::string region = response.get_header_value("x-amz-bucket-region");
  if (status == 404) return failed_for_good("it does not exist (" + text + ")", "check the path");
  if (is_s3 && !region.empty() && (status == 301 || status == 307 || status == 400))
    return failed_for_good("the bucket is in the region " + region + " (" + text + ")",
                           "set AWS_REGION=" + region);
  if (status == 401 || status == 403)
    return failed_for_good("access is denied (" + text + ")",
                           is_s3
                               ? "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; "
                                 "the clock of this host must be right, too"
                               : "check the URL; its server wants credentials");
  if (status == 200)
    return failed_for_good("its server does not serve ranges of bytes",
                           "use a server that does, or copy the file to a local disk");
  if (status == 206)
    return failed_for_good("its server answered with another range",
                           "use another server, or copy the file to a local disk");
  return failed_for_good(text, "check the path and the server");
}

}  // namespace

/// The object and the open connections to its server.
class HttpRangeReader::Connections {
 public:
  Connections(ObjectLocation location, const RetryOptions& retries)
      : location_(std::move(location)), retries_(retries) {
    std::byte first{};
    facts_ = *fetch(0, {&first, 1}).facts;
  }

  const ObjectLocation& location() const { return location_; }
  const ObjectFacts& facts() const { return *facts_; }

  /// Fills `bytes`, or throws a UserError. While facts_ is unset it returns what the server says,
  /// and bytes of an empty object are not filled.
  Outcome fetch(std::uint64_t offset, std::span<std::byte> bytes) {
    for (std::int64_t failures = 0;;) {
      Outcome outcome = request(offset, bytes);
      if (outcome.failure.empty()) return outcome;
      if (outcome.received >= kProgressBytes) failures = 0;
      offset += outcome.received;
      bytes = bytes.subspan(outcome.received);
      const std::int64_t attempts =
          facts_ ? retries_.attempts : std::min(retries_.attempts, kOpeningAttempts);
      if (!outcome.may_retry || ++failures >= attempts) give_up(outcome, failures);
      const double delay_s =
          retries_.first_delay_s *
          static_cast<double>(std::int64_t{1} << std::min<std::int64_t>(failures - 1, 16));
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::min(delay_s, kLongestDelaySeconds)));
    }
  }

 private:
  [[noreturn]] void give_up(const Outcome& outcome, std::int64_t failures) const {
    std::string got = outcome.failure;
    if (outcome.may_retry && failures > 1) got += ", " + std::to_string(failures) + " times";
    throw UserError({"cannot read " + location_.name, got, outcome.fix});
  }

  std::unique_ptr<httplib::Client> take_client() {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto client = std::move(idle_.back());
      idle_.pop_back();
      return client;
    }
    auto client = std::make_unique<httplib::Client>(location_.origin);
    if (!client->is_valid())
      throw UserError({"cannot read " + location_.name,
                       location_.origin + " is not a valid address",
                       "write http://host:port/path"});
    const std::chrono::duration<double> timeout(retries_.timeout_s);
    client->set_connection_timeout(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    client->set_read_timeout(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    client->set_keep_alive(true);
    client->set_url_encode(false);
    client->set_follow_location(!location_.s3);
    return client;
  }

  void give_back(std::unique_ptr<httplib::Client> client) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(client));
  }

  httplib::Headers headers_for(std::uint64_t offset, std::size_t size) const {
    const std::string range =
        "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + size - 1);
    httplib::Headers headers = {{"Accept-Encoding", "identity"}};
    if (!location_.s3) {
      headers.emplace("Range", range);
      return headers;
    }
    const S3Request request{.host = location_.host, .path = location_.target, .range = range};
    for (const auto& header : sign_s3_request(request, *location_.s3, std::time(nullptr)))
      headers.insert(header);
    return headers;
  }

  Outcome request(std::uint64_t offset, std::span<std::byte> bytes) {
    Outcome outcome;
    bool accepted = false;
    std::unique_ptr<httplib::Client> client = take_client();
    const httplib::Result result = client->Get(
        location_.target, headers_for(offset, bytes.size()),
        [&](const httplib::Response& response) {
          outcome = judge(response, offset, bytes.size());
          accepted = outcome.failure.empty();
          return accepted && outcome.facts->size > 0;
        },
        [&](const char* data, std::size_t size) {
          if (size > bytes.size() - outcome.received) return false;
          std::memcpy(bytes.data() + outcome.received, data, size);
          outcome.received += size;
          return true;
        });
    give_back(std::move(client));
    if (!outcome.failure.empty()) return outcome;
    if (!accepted) {
      outcome.failure = "no answer: " + httplib::to_string(result.error());
      outcome.fix = "check the address and the network";
      outcome.may_retry = result.error() != httplib::Error::SSLServerVerification &&
                          result.error() != httplib::Error::SSLLoadingCerts;
      return outcome;
    }
    const std::uint64_t expected = std::min<std::uint64_t>(bytes.size(), outcome.facts->size);
    if (outcome.received != expected) {
      outcome.failure = "the answer ended after " + std::to_string(outcome.received) + " of " +
                        std::to_string(expected) + " bytes";
      outcome.fix = "check the network and the server";
    }
    return outcome;
  }

  /// Judges status and headers of an answer to a request for `size` bytes.
  Outcome judge(const httplib::Response& response, std::uint64_t offset, std::size_t size) const {
    const std::optional<ContentRange> range =
        parse_content_range(response.get_header_value("Content-Range"));
    const bool is_empty = response.status == 416 && range && range->size == 0 && !facts_;
    if (is_empty) return {.facts = ObjectFacts{.size = 0, .version = version_of(response)}};
    if (response.status == 416 && facts_) return changed();
    if (response.status != 206) return refused(response, location_.s3.has_value());
    if (!range || range->size == 0) return refused(response, location_.s3.has_value());
    ObjectFacts facts{.size = range->size, .version = version_of(response)};
    if (facts_ && (facts.size != facts_->size || facts.version != facts_->version))
      return changed();
    if (range->first != offset || range->last != offset + size - 1 ||
        response.has_header("Content-Encoding"))
      return refused(response, location_.s3.has_value());
    return {.facts = std::move(facts)};
  }

  static Outcome changed() {
    return failed_for_good("it was replaced while it was read",
                           "do not change data during a run; start the run again");
  }

  ObjectLocation location_;
  RetryOptions retries_;
  std::optional<ObjectFacts> facts_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<httplib::Client>> idle_;
};

HttpRangeReader::HttpRangeReader(ObjectLocation location, const RetryOptions& retries)
    : connections_(std::make_unique<Connections>(std::move(location), retries)) {}

HttpRangeReader::~HttpRangeReader() = default;

std::string HttpRangeReader::name() const { return connections_->location().name; }
std::uint64_t HttpRangeReader::size() const { return connections_->facts().size; }
std::string HttpRangeReader::version() const { return connections_->facts().version; }

void HttpRangeReader::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  MEGATRON_CHECK(offset <= size() && bytes.size() <= size() - offset, bytes.size(), " bytes at ",
                 offset, " of ", name(), " are outside its ", size());
  if (!bytes.empty()) connections_->fetch(offset, bytes);
}

}  // namespace megatron
