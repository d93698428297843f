// Known answers of the standards, and streams equal to one shot.
#include "base/hash.h"

#include <gtest/gtest.h>

namespace tenon {
namespace {

TEST(Sha256, matches_the_known_answers_of_fips_180) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000, 'a')),
            "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(Sha256, a_stream_cut_anywhere_gives_the_digest_of_the_whole) {
  const std::string text(200, 'x');
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, cut));
    hash.update(std::string_view(text).substr(cut));
    EXPECT_EQ(hash.digest(), sha256(text));
  }
}

TEST(Sha256, digest_may_be_taken_on_the_way) {
  Sha256 hash;
  EXPECT_EQ(hash.digest(), sha256(""));
  hash.update("a");
  EXPECT_EQ(hash.digest(), sha256("a"));
  hash.update("bc");
  EXPECT_EQ(hash.digest(), sha256("abc"));
}

TEST(Hex, two_lower_case_digits_a_byte) {
  const std::array<uint8_t, 3> bytes = {0x00, 0xaf, 0xff};
  EXPECT_EQ(hex(bytes), "00afff");
}

TEST(Xxh3, matches_the_known_answers_of_xxhash) {
  EXPECT_EQ(xxh3_64(""), 0x2D06800538D394C2ull);
  EXPECT_EQ(xxh3_64("abc"), 0x78AF5F94892F3950ull);
}

TEST(KeyFrom, is_the_head_of_sha256_over_seed_and_name) {
  EXPECT_EQ(key_from(1337, "init/wte.weight"), 0x21ae32309cea9d61ull);
}

TEST(KeyFrom, seed_and_name_both_count) {
  EXPECT_NE(key_from(1, "a"), key_from(2, "a"));
  EXPECT_NE(key_from(1, "a"), key_from(1, "b"));
}

}  // namespace
}  // namespace tenon
