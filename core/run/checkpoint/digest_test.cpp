// Known answers, and that a checksum depends on where its chunk belongs.
#include "run/checkpoint/digest.h"

#include <gtest/gtest.h>

#include <set>

namespace tenon::checkpoint {
namespace {

TEST(Digest, Sha256GivesTheStandardAnswer) {
  EXPECT_EQ(sha256("abc").value(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Digest, ChunkChecksumDependsOnContentAndOnEveryFieldOfItsPlace) {
  const SaveId id{"run", 1}, other_run{"run2", 1}, other_step{"run", 2};
  const std::string w = "w", v = "v";
  const std::set<uint64_t> checksums = {
      chunk_checksum({id, w, 0, 0}, "data", 4),         chunk_checksum({id, w, 0, 0}, "date", 4),
      chunk_checksum({id, w, 0, 0}, "dat", 3),          chunk_checksum({other_run, w, 0, 0}, "data", 4),
      chunk_checksum({other_step, w, 0, 0}, "data", 4), chunk_checksum({id, v, 0, 0}, "data", 4),
      chunk_checksum({id, w, 1, 0}, "data", 4),         chunk_checksum({id, w, 0, 1}, "data", 4)};
  EXPECT_EQ(checksums.size(), 8U);
  EXPECT_EQ(chunk_checksum({id, w, 0, 0}, "data", 4), chunk_checksum({id, w, 0, 0}, "data", 4));
}

TEST(Digest, ChunkChecksumNeverChanges) {
  const SaveId id{"run", 1};
  const std::string name = "w";
  EXPECT_EQ(chunk_checksum({id, name, 0, 0}, "data", 4), 12081038042194726507U) << "part of the file format";
}

}  // namespace
}  // namespace tenon::checkpoint
