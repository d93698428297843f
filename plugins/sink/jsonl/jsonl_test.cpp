// Lines as they stand in the file, torn lines, a limit on the file's size, and the message of every refusal.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plugin_host.hpp"
#include "tenon/sink.h"

namespace tenon {
namespace {

class Sink {
 public:
  Sink(const test::LoadedPlugin& plugin, const std::string& folder, const char* file = nullptr)
      : table_(plugin.table<tenon_sink>(TENON_SINK)) {
    test::OptionValues options(plugin.plugin());
    if (file != nullptr) options.set("file", file);
    tenon_error error = test::empty_error();
    const tenon_sink_config config = {sizeof config,  options.size(), plugin.host(), options.data(),
                                      folder.c_str(), "a-run",        "{}"};
    if (table_.open(&config, &state_, &error) != TENON_OK) {
      throw std::runtime_error(error.message);
    }
  }
  ~Sink() { table_.close(state_); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // The message of the error, or "".
  std::string write(const char* event, int64_t step, int64_t attempt,
                    const std::vector<std::pair<const char*, double>>& metrics,
                    const std::vector<std::pair<const char*, const char*>>& texts = {}) {
    std::vector<tenon_metric> given;
    std::vector<tenon_text> words;
    for (const auto& [name, value] : metrics) given.push_back({sizeof(tenon_metric), 0, name, value});
    for (const auto& [name, text] : texts) words.push_back({sizeof(tenon_text), 0, name, text});
    std::vector<const tenon_metric*> pointers;
    std::vector<const tenon_text*> to_words;
    for (const tenon_metric& metric : given) pointers.push_back(&metric);
    for (const tenon_text& text : words) to_words.push_back(&text);
    const tenon_record record = {
        sizeof record,   static_cast<uint32_t>(pointers.size()), event, step, attempt, pointers.data(),
        to_words.data(), static_cast<uint32_t>(to_words.size()), 0};
    tenon_error error = test::empty_error();
    return table_.write(state_, &record, &error) == TENON_OK ? "" : error.message;
  }

 private:
  const tenon_sink& table_;
  tenon_sink_state* state_ = nullptr;
};

class Jsonl : public testing::Test {
 protected:
  std::string content(const std::string& name = "metrics.jsonl") const {
    std::ostringstream out;
    out << std::ifstream(folder_.path(name), std::ios::binary).rdbuf();
    return out.str();
  }
  void put(const std::string& text) const {
    std::ofstream(folder_.path("metrics.jsonl"), std::ios::binary) << text;
  }
  std::string refusal(const std::string& folder, const char* file) const {
    try {
      const Sink sink(plugin_, folder, file);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "opened";
  }

  test::TempFolder folder_;
  test::MockHost host_;
  test::LoadedPlugin plugin_{test::plugin_file("sink", "jsonl"), host_};
};

TEST_F(Jsonl, a_record_is_one_line_and_visible_at_once) {
  Sink sink(plugin_, folder_.path());
  EXPECT_EQ(content(), "");
  EXPECT_EQ(sink.write("start", 0, 1, {}), "");
  EXPECT_EQ(content(), "{\"event\":\"start\",\"step\":0,\"attempt\":1}\n");
  EXPECT_EQ(sink.write("step", 10, 1, {{"loss", 2.5}, {"aux", -3}, {"lr", 1e-4}}), "");
  EXPECT_EQ(content(),
            "{\"event\":\"start\",\"step\":0,\"attempt\":1}\n"
            "{\"event\":\"step\",\"step\":10,\"attempt\":1,\"loss\":2.5,\"aux\":-3.0,\"lr\":0.0001}\n");
}

TEST_F(Jsonl, texts_stand_behind_numbers) {
  Sink sink(plugin_, folder_.path());
  EXPECT_EQ(sink.write("save", 10, 1, {{"seconds", 2}}, {{"path", "checkpoints/step-10"}}), "");
  EXPECT_EQ(
      content(),
      "{\"event\":\"save\",\"step\":10,\"attempt\":1,\"seconds\":2.0,\"path\":\"checkpoints/step-10\"}\n");
}

TEST_F(Jsonl, what_is_not_finite_becomes_null) {
  Sink sink(plugin_, folder_.path());
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sink.write("step", 1, 1, {{"a", std::nan("")}, {"b", inf}, {"c", -inf}}), "");
  EXPECT_EQ(content(), "{\"event\":\"step\",\"step\":1,\"attempt\":1,\"a\":null,\"b\":null,\"c\":null}\n");
}

TEST_F(Jsonl, numbers_read_back_to_the_same_bits) {
  Sink sink(plugin_, folder_.path());
  const std::vector<double> values = {0.1, 1.0 / 3, 1e-308, 5e-324, 1.7976931348623157e308, 123456789.125};
  for (const double value : values) EXPECT_EQ(sink.write("step", 1, 1, {{"x", value}}), "");
  std::istringstream lines(content());
  std::string line;
  for (const double value : values) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(nlohmann::json::parse(line)["x"].get<double>(), value);
  }
}

TEST_F(Jsonl, names_are_escaped_and_bad_utf8_is_replaced) {
  Sink sink(plugin_, folder_.path());
  EXPECT_EQ(sink.write("a\"b\n", 1, 1, {{"x\xff", 1}}), "");
  EXPECT_EQ(content(), "{\"event\":\"a\\\"b\\n\",\"step\":1,\"attempt\":1,\"x\xef\xbf\xbd\":1.0}\n");
}

TEST_F(Jsonl, a_metric_that_stands_twice_is_refused_and_nothing_is_written) {
  Sink sink(plugin_, folder_.path());
  EXPECT_EQ(sink.write("step", 1, 1, {{"loss", 1}, {"loss", 2}}), "'loss' stands twice in one record");
  EXPECT_EQ(sink.write("step", 1, 1, {{"step", 1}}), "'step' stands twice in one record");
  EXPECT_EQ(content(), "");
}

TEST_F(Jsonl, opening_again_appends) {
  Sink(plugin_, folder_.path()).write("start", 0, 1, {});
  Sink(plugin_, folder_.path()).write("start", 5, 2, {});
  EXPECT_EQ(
      content(),
      "{\"event\":\"start\",\"step\":0,\"attempt\":1}\n{\"event\":\"start\",\"step\":5,\"attempt\":2}\n");
}

TEST_F(Jsonl, behind_a_torn_line_a_fresh_one_begins) {
  put("{\"event\":\"st");
  Sink sink(plugin_, folder_.path());
  sink.write("start", 5, 2, {});
  sink.write("end", 6, 2, {});
  EXPECT_EQ(content(),
            "{\"event\":\"st\n{\"event\":\"start\",\"step\":5,\"attempt\":2}\n"
            "{\"event\":\"end\",\"step\":6,\"attempt\":2}\n");
}

// The limit of the file's size stands for a full disk: the kernel takes a part of the line, then nothing.
TEST_F(Jsonl, a_line_cut_by_a_full_disk_is_an_error_and_the_next_is_fresh) {
  Sink sink(plugin_, folder_.path());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {10, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string first = sink.write("start", 0, 1, {});
  const std::string second = sink.write("start", 0, 1, {});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(first, "'" + folder_.path("metrics.jsonl") + "' took 10 of 39 bytes: is the disk full?");
  EXPECT_EQ(second, "'" + folder_.path("metrics.jsonl") + "' cannot be written: File too large");
  EXPECT_EQ(sink.write("end", 6, 2, {}), "");
  EXPECT_EQ(content(), "{\"event\":\"\n{\"event\":\"end\",\"step\":6,\"attempt\":2}\n");
}

TEST_F(Jsonl, two_writers_of_one_file_do_not_mix_their_lines) {
  Sink a(plugin_, folder_.path());
  Sink b(plugin_, folder_.path());
  for (int i = 0; i < 50; ++i) {
    a.write("a", i, 1, {{"x", 0.1}});
    b.write("bb", i, 1, {});
  }
  std::istringstream lines(content());
  std::string line;
  int count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_EQ(count, 100);
}

TEST_F(Jsonl, the_file_can_be_named) {
  Sink(plugin_, folder_.path(), "m.txt").write("start", 0, 1, {});
  EXPECT_EQ(content("m.txt"), "{\"event\":\"start\",\"step\":0,\"attempt\":1}\n");
  Sink(plugin_, "/nonexistent", folder_.path("absolute").c_str()).write("start", 0, 1, {});
  EXPECT_EQ(content("absolute"), content("m.txt"));
}

TEST_F(Jsonl, a_file_that_cannot_be_opened_is_named) {
  EXPECT_EQ(refusal(folder_.path(), "no/m"),
            "'" + folder_.path("no/m") + "' cannot be opened for appending: No such file or directory");
  EXPECT_EQ(refusal(folder_.path(), "."),
            "'" + folder_.path(".") + "' cannot be opened for appending: Is a directory");
  EXPECT_EQ(refusal(folder_.path(), ""), "file is empty: give the file a name");
}

}  // namespace
}  // namespace tenon
