#include "base/text.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace tenon {
namespace {

TEST(Text, words_of_any_language_are_text) {
  for (const char* text : {"", "loss", "two\nlines\tand a tab", "größer", "損失", "\U0001F600"})
    EXPECT_TRUE(is_text(text)) << text;
}

TEST(Text, bytes_that_are_no_utf8_and_control_characters_are_none) {
  for (const char* text :
       {"\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "a\x01", "\x7f"})
    EXPECT_FALSE(is_text(text));
  EXPECT_FALSE(is_text(nullptr));
}

TEST(Text, it_ends_within_so_many_bytes) {
  EXPECT_TRUE(is_text("abc", 4));
  EXPECT_FALSE(is_text("abc", 3));
}

// Text at the end of mapped memory: nothing behind its end, or behind the limit, is read.
TEST(Text, no_byte_behind_the_end_is_read) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* two =
      static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(two, MAP_FAILED);
  ASSERT_EQ(mprotect(two + page, page, PROT_NONE), 0);
  char* const text = two + page - 4;
  std::memcpy(text, "abc", 4);
  EXPECT_TRUE(is_text(text));
  text[3] = 'd';
  EXPECT_FALSE(is_text(text, 4));
  munmap(two, 2 * page);
}

TEST(Text, what_is_none_is_shown_as_that) {
  EXPECT_EQ(shown_text("lr"), "'lr'");
  EXPECT_EQ(shown_text(nullptr), "(NULL)");
  EXPECT_EQ(shown_text("\xff"), "(no text: not UTF-8, or without an end)");
}

}  // namespace
}  // namespace tenon
