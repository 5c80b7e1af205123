#!/usr/bin/env python3
"""Tests cpp_tokens.py on the constructs of C++ that the sources use."""

import pathlib
import sys
import unittest

import cpp_tokens

SOURCE = r"""
#define TWICE(x) \
  ((x) + (x))
#if defined(SOME) && !defined(OTHER)  // never unbalanced {
#endif
namespace megatron::detail {
namespace {
constexpr int kFirst = 1, kSecond{2}, *kThird = nullptr;
constexpr std::array<std::pair<const char*, int>, 2> kTable{{{"a)", 10}, {"}", 20}}};
const std::string kRaw = R"x(not " a ) brace { )x", kQuote = "\"{";
enum class Color : int { red = 30, green };
[[nodiscard]] bool is_operator(int c) { return c == '\'' || c == 1'000; }
}  // namespace
template <typename T, int kN = (3 > 2)>
  requires(sizeof(T) < 8)
class alignas(64) Queue final : public Base<std::vector<T>> {
 public:
  explicit Queue(int size = 40) : Base(size), items_{size}, names_(Map<int, T>{}) { open(size); }
  ~Queue() { close(41); }
  bool operator()(int a) const noexcept(true) { return a < 42; }
  bool operator<(const Queue& other) const { return size_ < other.size_; }
  explicit operator bool() const { return size_ != 43; }
  auto each(const auto& f) requires requires { f(0); } { return f(44); }
  struct Item {
    int weight = 45;
  };

 private:
  int size_ = 46;
};
template <typename T, int kN>
auto Queue<T, kN>::pop(std::function<bool(int)> f) -> std::vector<T> try {
  const auto g = [&](int i) { return i * 47; };  // return i * 48;
  struct Local { int f() { return 49; } };
  return std::vector<T>{g(1) /* 47 */, f(3)};
} catch (...) {
}
struct sockaddr_in address(int port) { return {.port = port + 50}; }
extern "C" __attribute__((target("avx2"))) void kernel(int n) { for (;;) { n >>= 1 << 51; } }
__global__ void __launch_bounds__(256) launch(float* x) { fill<<<1, 2>>>(x, 52); }
int same(int a) { return a + 60; }
int same(double a) { return a + 61; }
}  // namespace megatron::detail
TEST(Queue, Pops) { EXPECT_EQ(1, 70); }
"""


def count(name: str, old: str) -> int:
    return len(cpp_tokens.Source(SOURCE).find(name, cpp_tokens.tokens_of(old)))


class Tokens(unittest.TestCase):
    def test_space_and_comments_do_not_matter(self):
        self.assertEqual(
            cpp_tokens.tokens_of("a->b ( /*x=*/ 1'000u,\n  'c') // d"),
            cpp_tokens.tokens_of("a -> b(1'000u, 'c')"),
        )

    def test_words_are_whole_and_text_is_as_it_stands(self):
        self.assertEqual(cpp_tokens.tokens_of('i<10 "a  b"'), ["i", "<", "10", '"a  b"'])
        self.assertEqual(cpp_tokens.tokens_of('1e-5f+R"(a")"'), ["1e-5f", "+", 'R"(a")"'])
        self.assertEqual(cpp_tokens.tokens_of("a>>b<<c"), ["a", ">", ">", "b", "<<", "c"])


class Finder(unittest.TestCase):
    def test_finds_each_kind_of_declaration(self):
        for name, old in [
            ("TWICE", "(x) + (x)"),
            ("kFirst", "= 1"),
            ("kSecond", "2"),
            ("kThird", "nullptr"),
            ("kTable", "20"),
            ("kQuote", '"\\"{"'),
            ("Color", "30"),
            ("is_operator", "1'000"),
            ("Queue::Queue", "size = 40"),
            ("Queue::Queue", "items_{size}, names_"),
            ("Queue::Queue", "open(size);"),
            ("Queue::~Queue", "41"),
            ("Queue::operator()", "42"),
            ("Queue::operator<", "other.size_"),
            ("Queue::operator bool", "43"),
            ("Queue::each", "44"),
            ("Queue::Item::weight", "45"),
            ("Item", "45"),
            ("Queue::size_", "46"),
            ("Queue", "46"),
            ("Queue::pop", "return i * 47"),
            ("Queue::pop", "49"),
            ("address", "50"),
            ("kernel", "51"),
            ("launch", "52"),
            ("TEST", "70"),
        ]:
            self.assertEqual(count(name, old), 1, f"{name}: {old}")

    def test_finds_nothing_elsewhere(self):
        for name, old in [
            ("Queue::pop", "48"),  # a comment
            ("Queue::pop", "50"),  # of the next function
            ("pop::Local", "49"),  # bodies are not read
            ("ueue", "46"),
            ("Queue::weight", "45"),
            ("is_operator", "1'00"),
        ]:
            self.assertEqual(count(name, old), 0, f"{name}: {old}")

    def test_searches_all_of_a_name(self):
        self.assertEqual(count("same", "60"), 1)
        self.assertEqual(count("same", "61"), 1)
        self.assertEqual(count("same", "return a +"), 2)

    def test_places_are_characters(self):
        text = 'void f() {\n  g("ä",  // one\n    2);\n}\n'
        places = cpp_tokens.Source(text).find("f", cpp_tokens.tokens_of('"ä", 2'))
        self.assertEqual([text[begin:end] for begin, end in places], ['"ä",  // one\n    2'])

    def test_names_the_innermost_declaration(self):
        found = cpp_tokens.Source(SOURCE).find("", cpp_tokens.tokens_of("weight = 45"))
        self.assertEqual([*found.values()], ["Queue::Item::weight"])

    def test_refuses_brackets_that_do_not_match(self):
        for text in ("void f() {", "}", "int a[2);"):
            with self.assertRaisesRegex(ValueError, "bracket"):
                cpp_tokens.Source(text)

    def test_reads_all_sources(self):
        tree = cpp_tokens.Tree(pathlib.Path(__file__).resolve().parents[2])
        self.assertGreater(len(tree.texts), 1000)
        for file in tree.texts:
            tree.source(file)


if __name__ == "__main__":
    sys.exit(unittest.main())
