// What is said of a shard file whose header is not the manifest's.
#include "run/checkpoint/shard_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace tenon::checkpoint {
namespace {

class Header : public testing::Test {
 protected:
  Header() {
    Tensor tensor;
    tensor.dtype = TENON_F32;
    tensor.shape = {2, 3};
    Part part;
    part.box = {{0, 2}, {0, 3}};
    part.chunks = {0};
    tensor.parts = {part};
    tensors_ = {{"w", tensor}};
    layout_ = lay_out(SaveId{"run", 3}, tensors_, 0, "manifest.json").value();
  }
  std::string good() const { return layout_.header; }
  // The header with another document in it, padded as ever.
  std::string with(const std::string& json) const {
    std::string out = good().substr(0, 8) + json;
    out.resize(good().size(), ' ');
    return out;
  }
  std::string cause_of(const std::string& stored) const {
    const Status status = check_header(layout_, stored, "shard-00000.safetensors");
    if (status.ok()) return "";
    EXPECT_EQ(status.error().code, "C004");
    EXPECT_EQ(status.error().place, "shard-00000.safetensors");
    return status.error().cause;
  }

  std::map<std::string, Tensor> tensors_;
  ShardLayout layout_;
};

TEST_F(Header, of_the_manifest_is_accepted) { EXPECT_EQ(cause_of(good()), ""); }

TEST_F(Header, that_ends_early_or_claims_another_length_is_told) {
  EXPECT_EQ(cause_of(""), "the header ends within the file's first 4096 bytes");
  EXPECT_EQ(cause_of(good().substr(0, 100)), "the header ends within the file's first 4096 bytes");
  std::string longer = good();
  longer[7] = '\x40';
  EXPECT_EQ(cause_of(longer), "the header claims 4611686018427391992 bytes, the manifest needs 4088");
}

TEST_F(Header, that_is_no_json_is_told) {
  EXPECT_NE(cause_of(with("{\"w\":")).find("the header cannot be read: not valid JSON"), std::string::npos);
  EXPECT_EQ(cause_of(with("{\"w\":1,\"w\":1}")),
            "the header cannot be read: key 'w' stands twice in one object");
  EXPECT_EQ(cause_of(with("[]")), "the header is no JSON object");
}

TEST_F(Header, names_the_entry_that_differs) {
  Json json = Json::parse(good().substr(8));
  Json other = json;
  other["w"]["shape"] = {3, 2};
  EXPECT_EQ(cause_of(with(other.dump())),
            R"(the header says of 'w' {"data_offsets":[0,24],"dtype":"F32","shape":[3,2]}, the manifest )"
            R"({"data_offsets":[0,24],"dtype":"F32","shape":[2,3]})");
  other = json;
  other["__metadata__"]["tenon_step"] = "4";
  EXPECT_NE(cause_of(with(other.dump())).find("says of '__metadata__'"), std::string::npos);
  other = json;
  other.erase("w");
  EXPECT_EQ(cause_of(with(other.dump())), "the header lacks 'w'");
  other = json;
  other["x"] = 1;
  EXPECT_EQ(cause_of(with(other.dump())), "the header names 'x', which the manifest does not");
}

TEST_F(Header, in_another_form_is_refused_although_it_says_the_same) {
  const std::string json = Json::parse(good().substr(8)).dump();
  EXPECT_EQ(cause_of(with(" " + json)),
            "the header is written in another form than the manifest's, from byte 8");
}

}  // namespace
}  // namespace tenon::checkpoint
