// data/text: the bytes of text files as tokens. The files are one sequence; sample i begins at byte i *
// context and its targets are the bytes that follow. Immutable once open, hence thread-safe.
#define OPENSSL_SUPPRESS_DEPRECATED  // these functions, unlike EVP, can neither fail nor read a configuration
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include "file.hpp"
#include "tenon/data.h"
#include "tenon/plugin.h"

namespace tenon::data {
namespace {

using sdk::Failure;

constexpr int64_t kVocabulary = 256;
constexpr int32_t kNoTarget = -1;

// Files one behind the other, with nothing between them.
class Corpus {
 public:
  void append(const std::string& path) {
    files_.emplace_back(path);
    ends_.push_back(size() + files_.back().size());
  }
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  // put(k, byte first + k) for each k < count; they must exist.
  template <class Put>
  void read(int64_t first, int64_t count, Put&& put) const {
    size_t file = std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin();
    std::array<uint8_t, 4096> bytes;
    for (int64_t done = 0; done < count;) {
      const int64_t begin = first - (ends_[file] - files_[file].size());
      const int64_t run = std::min({count - done, ends_[file] - first, static_cast<int64_t>(bytes.size())});
      files_[file].read(begin, std::span(bytes).first(static_cast<size_t>(run)));
      for (int64_t i = 0; i < run; ++i) put(done + i, bytes[static_cast<size_t>(i)]);
      first += run;
      done += run;
      if (first == ends_[file]) ++file;
    }
  }

  // SHA-256 of, for each file in order, its size (8 bytes, little-endian) and its bytes.
  void digest(uint8_t out[32]) const {
    SHA256_CTX context;
    SHA256_Init(&context);
    std::vector<uint8_t> bytes(size_t{1} << 16);
    for (const File& file : files_) {
      const auto size = static_cast<uint64_t>(file.size());
      uint8_t prefix[8];
      for (int i = 0; i < 8; ++i) prefix[i] = static_cast<uint8_t>(size >> (8 * i));
      SHA256_Update(&context, prefix, sizeof prefix);
      for (int64_t at = 0; at < file.size();) {
        const auto part =
            std::span(bytes).first(std::min(bytes.size(), static_cast<size_t>(file.size() - at)));
        file.read(at, part);
        SHA256_Update(&context, part.data(), part.size());
        at += static_cast<int64_t>(part.size());
      }
    }
    SHA256_Final(out, &context);
  }

 private:
  std::vector<File> files_;
  std::vector<int64_t> ends_;  // position behind each file
};

Corpus open_corpus(const tenon_data_config& config) {
  const sdk::Options options(config);
  const tenon_option* files = options.find("files");
  if (files == nullptr || files->count == 0)
    throw Failure(TENON_E_ARGUMENT, "files is empty: name at least one file");
  if (config.context < 1) {
    throw Failure(TENON_E_ARGUMENT, "context = " + std::to_string(config.context) + ": must be 1 or more");
  }
  Corpus corpus;
  for (uint32_t i = 0; i < files->count; ++i) {
    corpus.append((std::filesystem::path(config.root) / files->list[i]).string());
  }
  if (corpus.size() < 2) {
    throw Failure(TENON_E_ARGUMENT,
                  std::string("'") + files->list[0] +
                      "' holds one byte, and nothing follows that could be predicted: 2 bytes "
                      "are the least");
  }
  return corpus;
}

}  // namespace
}  // namespace tenon::data

struct tenon_dataset {
  explicit tenon_dataset(const tenon_data_config& config)
      : corpus(tenon::data::open_corpus(config)),
        context(config.context),
        num_samples((corpus.size() - 2) / context + 1) {
    corpus.digest(digest);
  }
  tenon_dataset(const tenon_dataset&) = delete;
  tenon_dataset& operator=(const tenon_dataset&) = delete;

  tenon::data::Corpus corpus;
  int64_t context;
  int64_t num_samples;
  uint8_t digest[32];
  tenon_field tokens = field("tokens"), targets = field("targets");
  const tenon_field* fields[2] = {&tokens, &targets};

 private:
  tenon_field field(const char* name) const {
    return {sizeof(tenon_field), 0, name, {TENON_I32, 1, &context}, tenon::data::kVocabulary};
  }
};

namespace tenon::data {
namespace {

using sdk::guard;

// A position without a following byte is padding: token 0, target -1.
void read_sample(const tenon_dataset& dataset, int64_t index, int32_t* tokens, int32_t* targets) {
  const int64_t first = index * dataset.context;
  const int64_t count = std::min(dataset.context, dataset.corpus.size() - 1 - first);
  dataset.corpus.read(first, count + 1, [&](int64_t k, uint8_t byte) {
    if (k < count) tokens[k] = byte;
    if (k > 0) targets[k - 1] = byte;
  });
  std::fill(tokens + count, tokens + dataset.context, 0);
  std::fill(targets + count, targets + dataset.context, kNoTarget);
}

tenon_code open_dataset(const tenon_data_config* config, tenon_dataset** out, tenon_error* error) {
  return guard(error,
               [&] { *out = new tenon_dataset(sdk::read(config, TENON_END(tenon_data_config, context))); });
}

void close_dataset(tenon_dataset* dataset) { delete dataset; }

tenon_code describe(tenon_dataset* dataset, tenon_data_info* info, tenon_error*) {
  tenon_data_info mine = {sizeof mine, 2, dataset->num_samples, dataset->fields, {}};
  std::copy(std::begin(dataset->digest), std::end(dataset->digest), mine.digest);
  tenon_fill(info, &mine);
  return TENON_OK;
}

tenon_code read(tenon_dataset* dataset, const int64_t* indices, uint64_t n, void* const* outs,
                tenon_error* error) {
  return guard(error, [&] {
    for (uint64_t i = 0; i < n; ++i) {
      if (indices[i] >= 0 && indices[i] < dataset->num_samples) continue;
      throw Failure(TENON_E_ARGUMENT, "sample " + std::to_string(indices[i]) + ": samples are 0 to " +
                                          std::to_string(dataset->num_samples - 1));
    }
    auto* tokens = static_cast<int32_t*>(outs[0]);
    auto* targets = static_cast<int32_t*>(outs[1]);
    for (uint64_t i = 0; i < n; ++i, tokens += dataset->context, targets += dataset->context) {
      read_sample(*dataset, indices[i], tokens, targets);
    }
  });
}

tenon_code encode(tenon_dataset*, const char* text, uint64_t size, int32_t* tokens, uint64_t* count,
                  tenon_error*) {
  if (*count >= size) {
    std::transform(text, text + size, tokens, [](char c) { return static_cast<unsigned char>(c); });
  }
  *count = size;
  return TENON_OK;
}

tenon_code decode(tenon_dataset*, const int32_t* tokens, uint64_t n, char* text, uint64_t* count,
                  tenon_error* error) {
  return guard(error, [&] {
    for (uint64_t i = 0; i < n; ++i) {
      if (tokens[i] >= 0 && tokens[i] < kVocabulary) continue;
      throw Failure(TENON_E_ARGUMENT, "token " + std::to_string(tokens[i]) + " at position " +
                                          std::to_string(i) + ": a byte is 0 to 255");
    }
    if (*count >= n) std::transform(tokens, tokens + n, text, [](int32_t t) { return static_cast<char>(t); });
    *count = n;
  });
}

constexpr tenon_option_decl kFiles = tenon::sdk::strings_option(
    "files", "text files, in this order; relative to the recipe's folder", nullptr);
constexpr const tenon_option_decl* kOptions[] = {&kFiles};

constexpr tenon_data kTable = {sizeof(tenon_data), 0,    open_dataset, close_dataset,
                               describe,           read, encode,       decode};

}  // namespace
}  // namespace tenon::data

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_DATA, tenon::data::kTable>(
    "data/text", "0.1.0", "The bytes of text files as tokens, vocabulary 256", tenon::data::kOptions);
