// Windows over one and several files, the tail, the tokenizer, the digest, and the message of every refusal.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <numeric>

#include "plugin_host.hpp"
#include "tenon/data.h"

namespace tenon {
namespace {

using Tokens = std::vector<int32_t>;

class Dataset {
 public:
  Dataset(const tenon_data& table, const std::string& root, const test::OptionValues& options,
          int64_t context)
      : table_(table), context_(context) {
    const tenon_data_config config = {sizeof config,  options.size(), nullptr,
                                      options.data(), root.c_str(),   context};
    tenon_error error = test::empty_error();
    if (table_.open(&config, &dataset_, &error) != TENON_OK) throw std::runtime_error(error.message);
  }
  ~Dataset() { table_.close(dataset_); }
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  tenon_data_info info() const {
    tenon_data_info info{};
    info.struct_size = sizeof info;
    tenon_error error = test::empty_error();
    EXPECT_EQ(table_.describe(dataset_, &info, &error), TENON_OK);
    return info;
  }
  std::vector<uint8_t> digest() const {
    const tenon_data_info i = info();
    return {i.digest, i.digest + 32};
  }
  // Tokens of the samples, then their targets.
  std::pair<Tokens, Tokens> read(const std::vector<int64_t>& indices) const {
    Tokens tokens(indices.size() * context_, 77), targets = tokens;
    void* outs[] = {tokens.data(), targets.data()};
    tenon_error error = test::empty_error();
    if (table_.read(dataset_, indices.data(), indices.size(), outs, &error) != TENON_OK) {
      EXPECT_EQ(tokens, Tokens(tokens.size(), 77)) << "outputs were touched";
      throw std::runtime_error(error.message);
    }
    return {tokens, targets};
  }
  const tenon_data& table() const { return table_; }
  tenon_dataset* get() const { return dataset_; }

 private:
  const tenon_data& table_;
  int64_t context_;
  tenon_dataset* dataset_ = nullptr;
};

class Text : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path(name), std::ios::binary) << text;
  }
  std::unique_ptr<Dataset> open(const std::vector<std::string>& files, int64_t context) const {
    test::OptionValues options(plugin_.plugin());
    options.set("files", files);
    return std::make_unique<Dataset>(plugin_.table<tenon_data>(TENON_DATA), folder_.path(), options, context);
  }
  std::string refusal(const std::vector<std::string>& files, int64_t context) const {
    try {
      open(files, context);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "opened";
  }

  test::TempFolder folder_;
  test::MockHost host_;
  test::LoadedPlugin plugin_{test::plugin_file("data", "text"), host_};
};

Tokens bytes(const std::string& text) {
  Tokens out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

TEST_F(Text, targets_are_the_tokens_moved_by_one_across_samples) {
  write("a", "abcdefg");  // 6 targets: two full windows of 3
  const auto data = open({"a"}, 3);
  EXPECT_EQ(data->info().num_samples, 2);
  EXPECT_EQ(data->read({0}), std::pair(bytes("abc"), bytes("bcd")));
  EXPECT_EQ(data->read({1}), std::pair(bytes("def"), bytes("efg")));
}

TEST_F(Text, a_short_tail_is_padded_with_token_0_and_target_minus_1) {
  write("a", "abcdefgh");  // the last window is "gh": one target
  const auto data = open({"a"}, 3);
  EXPECT_EQ(data->info().num_samples, 3);
  EXPECT_EQ(data->read({2}), (std::pair<Tokens, Tokens>({'g', 0, 0}, {'h', -1, -1})));
}

TEST_F(Text, samples_come_in_the_order_that_was_asked_repeats_included) {
  write("a", "abcdefg");
  const auto data = open({"a"}, 3);
  EXPECT_EQ(data->read({1, 0, 1}), std::pair(bytes("defabcdef"), bytes("efgbcdefg")));
  EXPECT_EQ(data->read({}), (std::pair<Tokens, Tokens>()));
}

// Every size of corpus, cut into files in many ways, against indexing into the joined string.
TEST_F(Text, windows_over_any_cut_into_files_equal_windows_over_the_joined_text) {
  std::string joined;
  for (int i = 0; i < 40; ++i) joined += static_cast<char>(i * 37 + 1);
  for (size_t size = 3; size <= joined.size(); ++size) {
    const std::vector<size_t> ends = {1, 2 + (size - 3) / 2, size};
    write("x", joined.substr(0, ends[0]));
    write("y", joined.substr(ends[0], ends[1] - ends[0]));
    write("z", joined.substr(ends[1], size - ends[1]));
    for (const int64_t context : {1, 2, 7, 39, 64}) {
      const auto data = open({"x", "y", "z"}, context);
      const int64_t targets = static_cast<int64_t>(size) - 1;
      ASSERT_EQ(data->info().num_samples, targets / context + (targets % context != 0));
      std::vector<int64_t> all(data->info().num_samples);
      std::iota(all.begin(), all.end(), 0);
      const auto [tokens, next] = data->read(all);
      for (int64_t i = 0; i < static_cast<int64_t>(tokens.size()); ++i) {
        ASSERT_EQ(tokens[i], i < targets ? static_cast<unsigned char>(joined[i]) : 0)
            << size << " " << context;
        ASSERT_EQ(next[i], i < targets ? static_cast<unsigned char>(joined[i + 1]) : -1)
            << size << " " << context;
      }
    }
  }
}

TEST_F(Text, describes_two_fields_of_bytes) {
  write("a", "abc");
  const auto data = open({"a"}, 5);
  const tenon_data_info info = data->info();
  ASSERT_EQ(info.num_fields, 2u);
  EXPECT_STREQ(info.fields[0]->name, "tokens");
  EXPECT_STREQ(info.fields[1]->name, "targets");
  for (int f = 0; f < 2; ++f) {
    EXPECT_EQ(info.fields[f]->limit, 256);
    EXPECT_EQ(info.fields[f]->shape.dtype, static_cast<uint32_t>(TENON_I32));
    ASSERT_EQ(info.fields[f]->shape.ndim, 1u);
    EXPECT_EQ(info.fields[f]->shape.dims[0], 5);
  }
}

TEST_F(Text, digest_is_sha256_of_sizes_and_contents) {
  write("a", "abc");
  write("b", "d");
  // printf '\3\0\0\0\0\0\0\0abc\1\0\0\0\0\0\0\0d' | sha256sum
  const std::vector<uint8_t> expected = {0x70, 0xed, 0x40, 0x37, 0x83, 0x63, 0x09, 0x12, 0x36, 0xfd, 0x4f,
                                         0x37, 0x13, 0x22, 0xb1, 0x0a, 0x03, 0xa8, 0x60, 0x8d, 0x3d, 0x4c,
                                         0x40, 0x41, 0xf9, 0x44, 0xb4, 0x43, 0xb6, 0x7a, 0xc4, 0x95};
  EXPECT_EQ(open({"a", "b"}, 2)->digest(), expected);
}

TEST_F(Text, digest_depends_on_content_order_and_borders_but_not_on_names_or_context) {
  write("ab", "ab"), write("c", "c"), write("a", "a"), write("bc", "bc"), write("copy", "ab");
  const auto digest = open({"ab", "c"}, 2)->digest();
  EXPECT_EQ(open({"copy", "c"}, 1)->digest(), digest);
  EXPECT_NE(open({"c", "ab"}, 2)->digest(), digest);
  EXPECT_NE(open({"a", "bc"}, 2)->digest(), digest);
}

TEST_F(Text, windows_are_read_across_long_runs_and_borders) {
  std::string long_text;
  for (int i = 0; i < 20000; ++i) long_text += static_cast<char>(i * 7 % 251);
  write("a", long_text.substr(0, 9001)), write("b", long_text.substr(9001));
  const auto [tokens, targets] = open({"a", "b"}, 19000)->read({0});
  for (size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_EQ(tokens[i], static_cast<unsigned char>(long_text[i])) << i;
    ASSERT_EQ(targets[i], static_cast<unsigned char>(long_text[i + 1])) << i;
  }
}

TEST_F(Text, there_may_be_more_files_than_can_be_open) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = std::min<rlim_t>(64, limit.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) write(names.emplace_back("f" + std::to_string(i)), "ab");
  EXPECT_EQ(open(names, 10)->read({19}).first, (Tokens{'a', 'b', 'a', 'b', 'a', 'b', 'a', 'b', 'a', 0}));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(Text, a_file_that_is_cut_while_in_use_is_an_error) {
  write("a", std::string(100, 'x'));
  const auto dataset = open({"a"}, 10);
  write("a", std::string(50, 'x'));
  EXPECT_EQ(dataset->read({3}).first, Tokens(10, 'x'));
  try {
    dataset->read({6});
    FAIL() << "read what is not there";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(),
              "'" + folder_.path("a") + "' has become shorter than the 100 bytes that it had: put it back");
  }
}

TEST_F(Text, an_absolute_path_ignores_the_root) {
  write("a", "abc");
  EXPECT_EQ(open({folder_.path("a")}, 2)->info().num_samples, 1);
}

TEST_F(Text, encode_and_decode_are_the_bytes_and_say_what_they_need) {
  write("a", "abc");
  const auto data = open({"a"}, 2);
  const std::string text("h\xc3\xa9\0!", 5);
  tenon_error error = test::empty_error();
  Tokens tokens(5, 77);
  uint64_t count = 4;
  EXPECT_EQ(data->table().encode(data->get(), text.data(), 5, tokens.data(), &count, &error), TENON_OK);
  EXPECT_EQ(count, 5u);
  EXPECT_EQ(tokens, Tokens(5, 77));
  EXPECT_EQ(data->table().encode(data->get(), text.data(), 5, tokens.data(), &count, &error), TENON_OK);
  EXPECT_EQ(tokens, (Tokens{'h', 0xc3, 0xa9, 0, '!'}));
  std::string back(5, 'x');
  count = 0;
  EXPECT_EQ(data->table().decode(data->get(), tokens.data(), 5, nullptr, &count, &error), TENON_OK);
  EXPECT_EQ(count, 5u);
  EXPECT_EQ(data->table().decode(data->get(), tokens.data(), 5, back.data(), &count, &error), TENON_OK);
  EXPECT_EQ(back, text);
}

TEST_F(Text, decode_refuses_what_is_no_byte) {
  write("a", "abc");
  const auto data = open({"a"}, 2);
  for (const int32_t token : {-1, 256}) {
    const Tokens tokens = {65, token};
    char text[2] = {'x', 'x'};
    uint64_t count = 2;
    tenon_error error = test::empty_error();
    EXPECT_EQ(data->table().decode(data->get(), tokens.data(), 2, text, &count, &error), TENON_E_ARGUMENT);
    EXPECT_EQ(std::string(error.message),
              "token " + std::to_string(token) + " at position 1: a byte is 0 to 255");
    EXPECT_EQ(text[0], 'x');
  }
}

TEST_F(Text, an_index_outside_is_refused_with_the_range) {
  write("a", "abcdefg");
  const auto data = open({"a"}, 3);
  for (const int64_t index : {-1, 2}) {
    try {
      data->read({0, index});
      FAIL();
    } catch (const std::runtime_error& e) {
      EXPECT_EQ(std::string(e.what()), "sample " + std::to_string(index) + ": samples are 0 to 1");
    }
  }
}

TEST_F(Text, bad_files_are_refused_by_path) {
  write("one", "x"), write("empty", ""), write("good", "abc");
  EXPECT_EQ(refusal({"good", "missing"}, 2),
            "'" + folder_.path("missing") + "' cannot be opened: No such file or directory");
  EXPECT_EQ(refusal({"good", "empty"}, 2), "'" + folder_.path("empty") + "' is empty: remove it from files");
  EXPECT_EQ(refusal({"good", ""}, 2),
            "'" + folder_.path("") + "' is not a regular file: name the files themselves");
  EXPECT_EQ(refusal({"one"}, 2),
            "'one' holds one byte, and nothing follows that could be predicted: 2 bytes are the least");
  EXPECT_EQ(refusal({"one", "one"}, 2), "opened");
  EXPECT_EQ(refusal({}, 2), "files is empty: name at least one file");
  EXPECT_EQ(refusal({"good"}, 0), "context = 0: must be 1 or more");
}

}  // namespace
}  // namespace tenon
