// Plugins of an older and of a newer minor train: every plugin that the tables of this tree come from, with
// what it hands out cut and grown at the end of mapped memory, in a run that calls it.
#include <filesystem>

#include "workplace.hpp"

namespace tenon::test {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string id;
  std::vector<std::string> arguments;  // of train
  std::string deed;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.id << ", " << c.deed; }

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string deed : {"cut", "grown"}) {
    out.push_back({"kernels/cpu", {"tiny.lua"}, deed});
    out.push_back({"kernels/reference", {"tiny.lua", "kernels=kernels/reference"}, deed});
    out.push_back({"optimizer/adamw", {"tiny.lua"}, deed});
    out.push_back({"optimizer/sgd", {"tiny.lua", "optim=sgd"}, deed});
    out.push_back({"optimizer/lamb", {"tiny.lua", "optim=lamb"}, deed});
    out.push_back({"data/text", {"tiny.lua"}, deed});
    out.push_back({"sink/jsonl", {"tiny.lua"}, deed});
    out.push_back({"frontend/lua", {"tiny.lua"}, deed});
    out.push_back({"comm/local", {"tiny.lua", "-n", "2"}, deed});
    out.push_back({"comm/ucx", {"tiny.lua", "-n", "2", "comm=comm/ucx"}, deed});
    out.push_back({"schedule/1f1b", {"pipeline.lua", "-n", "2"}, deed});
    out.push_back({"parallel/data", {"tiny.lua", "-n", "2"}, deed});
  }
  return out;
}

class Place {
 public:
  Place() {
    place_.write_changed("pipeline.lua", "mesh = t.mesh { dp = p.dp },",
                         "mesh = t.mesh { pp = 2 }, strategies = { t.strategy.pipeline {} },");
  }
  void use(const Case& c) const {
    std::string file = c.id;
    std::ranges::replace(file, '/', '-');
    fs::create_directory(place_.at("other"));
    fs::create_symlink(TENON_OTHER_MINOR, place_.at("other/libtenon-" + file + ".so"));
    place_.write("other/other-minor", std::string(TENON_PLUGIN_DIR) + "\n" + c.deed + "\n");
  }
  // What is in the newest checkpoint.
  SavedState train(const Case& c, const std::string& run, const std::vector<std::string>& environment) const {
    std::vector<std::string> arguments{"train", "--run-dir", run};
    arguments.insert(arguments.end(), c.arguments.begin(), c.arguments.end());
    arguments.insert(arguments.end(), {"steps=4", "save=2", "eval=2"});
    const CommandResult result = place_.run(arguments, environment);
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("done"), std::string::npos) << result.out;
    return result.code == 0 ? saved_state(place_.at(run)) : SavedState{};
  }
  bool used() const { return fs::exists(place_.at("other/used")); }
  std::string path() const { return "TENON_PLUGIN_PATH=" + place_.at("other"); }

 private:
  Workplace place_;
};

class OtherMinors : public testing::TestWithParam<Case> {};

TEST_P(OtherMinors, train_as_those_of_today_do) {
  const Place place;
  const SavedState today = place.train(GetParam(), "today", {});
  place.use(GetParam());
  const SavedState other = place.train(GetParam(), "other-run", {place.path()});
  EXPECT_TRUE(place.used());
  expect_same(other, today, "a plugin of another minor");
}

INSTANTIATE_TEST_SUITE_P(All, OtherMinors, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.id + "_" + info.param.deed;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace tenon::test
