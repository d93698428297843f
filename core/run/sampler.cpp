#include "run/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/hash.h"
#include "base/rng.h"

namespace tenon {

Error nothing_held_out() {
  return {"D004", "nothing is held out to evaluate on", "/data/valid", "set valid above 0", TENON_E_RECIPE};
}

Result<Sampler> Sampler::create(int64_t num_samples, double valid, uint64_t seed) {
  Sampler out;
  out.num_samples_ = num_samples;
  out.num_train_ = num_samples - static_cast<int64_t>(std::ceil(valid * static_cast<double>(num_samples)));
  out.seed_ = seed;
  if (out.num_train_ < 1) {
    return Error{"D001",
                 fmt::format("{} samples with a share of {} for validation leave none to train on",
                             num_samples, valid),
                 "/data", "use more text, a shorter context or a smaller share", TENON_E_RECIPE};
  }
  return out;
}

int64_t Sampler::train(int64_t position) const {
  const int64_t epoch = position / num_train_;
  const Permutation order(static_cast<uint64_t>(num_train_),
                          key_from(seed_, "shuffle/" + std::to_string(epoch)));
  return static_cast<int64_t>(order(static_cast<uint64_t>(position % num_train_)));
}

int64_t Sampler::valid(int64_t position) const { return position < num_valid() ? num_train_ + position : -1; }

namespace {

Status check_fields(const std::string& id, const DataDeclaration& declared, int64_t context) {
  for (const char* own : {"positions", "samples", "step"}) {
    if (std::ranges::count(declared.fields, own, &FieldDeclaration::name) == 0) continue;
    return Error{"D002", fmt::format("{} offers a field '{}', which is the core's own input", id, own),
                 "/data", "remove the field from the plugin, or give it another name", TENON_E_RECIPE};
  }
  for (const char* needed : {"tokens", "targets"}) {
    const bool fits = std::ranges::any_of(declared.fields, [&](const FieldDeclaration& f) {
      return f.name == needed && f.dtype == Dtype::i32 && f.dims == std::vector<int64_t>{context};
    });
    if (fits) continue;
    return Error{"D002", fmt::format("{} offers no field '{}' of i32[{}]", id, needed, context), "/data", "",
                 TENON_E_RECIPE};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Feeder>> Feeder::open(const Plugged<tenon_data>& plugin, const std::string& root,
                                             int64_t context) {
  std::unique_ptr<Feeder> out(new Feeder(plugin));
  out->context_ = context;
  auto config = config_of<tenon_data_config>(plugin);
  config.root = root.c_str();
  config.context = context;
  auto opened =
      open_with_options<tenon_dataset>(plugin.id, plugin.pointer, plugin.table->close,
                                       [&](auto** o, auto* e) { return plugin.table->open(&config, o, e); });
  if (!opened.ok()) {
    Error error = std::move(opened).error();
    if (error.place != plugin.pointer) error.cause = plugin.id + ": " + error.cause;
    error.place = plugin.pointer;
    return error;
  }
  out->dataset_ = std::move(opened).value();
  TENON_TRY(out->declared_, describe(plugin, out->dataset_.get()));
  TENON_CHECK(check_fields(plugin.id, out->declared_, context));
  return out;
}

namespace {

constexpr int64_t kMostFieldBytes = int64_t{1} << 32;  // of one field of a microbatch

// What the plugin declared, and no more than the model knows.
ValueRange range_of(const FieldDeclaration& field, const TokenLimits& model) {
  ValueRange out;
  if (field.limit > 0) out.limit = field.limit;
  if (field.name == "tokens") out.limit = std::min(out.limit, model.tokens);
  if (field.name == "targets") out = {-1, std::min(out.limit, model.targets)};
  return out;
}

}  // namespace

Status Feeder::expect(const TokenLimits& limits, int64_t samples) {
  ranges_.clear();
  whole_.resize(declared_.fields.size());
  for (size_t f = 0; f < declared_.fields.size(); ++f) {
    const FieldDeclaration& field = declared_.fields[f];
    ranges_.push_back(range_of(field, limits));
    if (field.bytes() > kMostFieldBytes / samples) {
      return Error{"A005",
                   fmt::format("{} samples of field '{}' have {} bytes each, and all are to have {} at most",
                               samples, field.name, field.bytes(), kMostFieldBytes),
                   plugin_.id + ", describe", "correct what the plugin says of itself", TENON_E_VERSION};
    }
    TENON_CHECK(whole_[f].resize(static_cast<size_t>(field.bytes() * samples)));
  }
  return {};
}

int64_t Feeder::token_limit() const {
  const auto tokens = std::ranges::find(declared_.fields, "tokens", &FieldDeclaration::name);
  return tokens == declared_.fields.end() ? 0 : tokens->limit;
}

std::string Feeder::digest() const { return hex(declared_.digest); }

namespace {

std::vector<TokenRange> ranges_of(int64_t context, int64_t parts, int64_t index) {
  if (parts == 1) return {{0, context}};
  const int64_t count = context / (2 * parts);
  return {{index * count, count}, {(2 * parts - 1 - index) * count, count}};
}

}  // namespace

std::vector<TokenRange> tokens_of(const Program& program, int64_t rank) {
  const int64_t parts = program.mesh.size(program.seq_axes);
  const int64_t context = program.inputs[0].at("tokens").dims[1] * parts;
  return ranges_of(context, parts, index_on(program.mesh, program.mesh.coordinate(rank), program.seq_axes));
}

int64_t gathered_position(const Program& program, int64_t position) {
  const int64_t parts = program.mesh.size(program.seq_axes);
  const int64_t context = program.inputs[0].at("tokens").dims[1] * parts;
  int64_t before = 0;
  for (int64_t index = 0; index < parts; ++index) {
    for (const TokenRange& range : ranges_of(context, parts, index)) {
      if (position >= range.first && position < range.first + range.count)
        return before + position - range.first;
      before += range.count;
    }
  }
  return position;
}

// Whole samples into whole_.
Status Feeder::read(const std::vector<int64_t>& indices) {
  std::vector<void*> outs;
  for (size_t f = 0; f < declared_.fields.size(); ++f) {
    TENON_CHECK(whole_[f].resize(static_cast<size_t>(declared_.fields[f].bytes()) * indices.size()));
    whole_[f].poison();
    outs.push_back(whole_[f].data());
  }
  tenon_error error = empty_abi_error();
  const tenon_code code =
      plugin_.table->read(dataset_.get(), indices.data(), indices.size(), outs.data(), &error);
  if (code != TENON_OK) return from_abi(code, error, plugin_.id);
  for (size_t f = 0; f < declared_.fields.size(); ++f)
    TENON_CHECK(check_written(whole_[f], declared_.fields[f], ranges_[f], plugin_.id));
  return {};
}

namespace {

// Of each of `samples` rows of `context` tokens only `ranges`, one behind the other.
void cut_tokens(const char* rows, size_t row_bytes, int64_t context, int64_t samples,
                const std::vector<TokenRange>& ranges, char* out) {
  const size_t token = row_bytes / static_cast<size_t>(context);
  for (int64_t sample = 0; sample < samples; ++sample) {
    const char* const row = rows + static_cast<size_t>(sample) * row_bytes;
    for (const TokenRange& range : ranges) {
      const size_t bytes = static_cast<size_t>(range.count) * token;
      std::memcpy(out, row + static_cast<size_t>(range.first) * token, bytes);
      out += bytes;
    }
  }
}

// Positions and sample numbers.
void number(const std::vector<int64_t>& indices, const std::vector<TokenRange>& ranges,
            const std::map<std::string, char*>& inputs) {
  auto* positions = reinterpret_cast<int32_t*>(inputs.at("positions"));
  std::memcpy(inputs.at("samples"), indices.data(), indices.size() * sizeof(int64_t));
  for (size_t i = 0; i < indices.size(); ++i) {
    for (const TokenRange& range : ranges) {
      for (int64_t s = 0; s < range.count; ++s) *positions++ = static_cast<int32_t>(range.first + s);
    }
  }
}

}  // namespace

Status Feeder::fill(const std::vector<int64_t>& indices, const std::vector<TokenRange>& ranges,
                    const std::map<std::string, char*>& inputs) {
  std::vector<int64_t> readable = indices;
  std::replace(readable.begin(), readable.end(), int64_t{-1}, int64_t{0});
  TENON_CHECK(read(readable));
  for (size_t f = 0; f < declared_.fields.size(); ++f) {
    const auto it = inputs.find(declared_.fields[f].name);
    if (it == inputs.end()) continue;
    if (ranges.size() > 1) {  // fields are rows of `context_` tokens, as open() has checked
      cut_tokens(whole_[f].data(), whole_[f].size() / indices.size(), context_,
                 static_cast<int64_t>(indices.size()), ranges, it->second);
    } else {
      std::memcpy(it->second, whole_[f].data(), whole_[f].size());
    }
  }
  number(indices, ranges, inputs);
  auto* targets = reinterpret_cast<int32_t*>(inputs.at("targets"));
  int64_t tokens = 0;
  for (const TokenRange& range : ranges) tokens += range.count;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0) std::fill_n(targets + static_cast<int64_t>(i) * tokens, tokens, -1);
  }
  return {};
}

namespace {

// Calls a function that fills a buffer and tells what it needs, once more with that where it was too small.
template <class Buffer, class Call>
Result<Buffer> filled(const std::string& who, const char* what, size_t guess, Call&& call) {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  typename Buffer::value_type unwritten{};
  std::memset(&unwritten, 0x80, sizeof unwritten);
  Buffer out;
  size_t room = guess;
  for (const int attempt : {1, 2}) {
    out.assign(room, unwritten);
    uint64_t count = room;
    tenon_error error = empty_abi_error();
    const tenon_code code = call(out.data(), &count, &error);
    if (code != TENON_OK) return from_abi(code, error, fmt::format("{}, {}", who, what));
    const bool fits = count <= out.size();
    if (!fits && (attempt == 2 || count > kMost)) {
      return Error{
          "D007",
          fmt::format("{}, {}: it needs {} entries, where {} were given", who, what, count, out.size()),
          "/data/plugin", "correct the plugin", TENON_E_RECIPE};
    }
    if (fits && count == room && std::ranges::count(out, unwritten) == std::ssize(out)) {
      return Error{"D007", fmt::format("{}, {}: it said that it succeeded, and wrote nothing", who, what),
                   "/data/plugin", "correct the plugin", TENON_E_RECIPE};
    }
    room = count;
    if (fits) break;
  }
  out.resize(room);
  return out;
}

}  // namespace

Result<std::vector<int32_t>> Feeder::encode(const std::string& text) const {
  TENON_CHECK(check_text());
  TENON_TRY(auto tokens, filled<std::vector<int32_t>>(plugin_.id, "encode", text.size() + 16, [&](auto... a) {
              return plugin_.table->encode(dataset_.get(), text.data(), text.size(), a...);
            }));
  const auto field = std::ranges::find(declared_.fields, "tokens", &FieldDeclaration::name);
  const ValueRange range = ranges_.at(static_cast<size_t>(field - declared_.fields.begin()));
  for (const int32_t token : tokens) {
    if (token >= range.least && token < range.limit) continue;
    return Error{"D007",
                 fmt::format("{}, encode: token {}, where {} to {} are", plugin_.id, token, range.least,
                             range.limit - 1),
                 "/data/plugin", "correct the plugin", TENON_E_RECIPE};
  }
  return tokens;
}

Result<std::string> Feeder::decode(const std::vector<int32_t>& tokens) const {
  TENON_CHECK(check_text());
  return filled<std::string>(plugin_.id, "decode", tokens.size() * 16 + 16, [&](auto... a) {
    return plugin_.table->decode(dataset_.get(), tokens.data(), tokens.size(), a...);
  });
}

Status Feeder::check_text() const {
  if (plugin_.table->encode != nullptr && plugin_.table->decode != nullptr) return {};
  return Error{"D006", "the data plugin does not turn text into tokens", "/data/plugin", "",
               TENON_E_UNSUPPORTED};
}

BatchSlice slice_batch(const Program& program, int64_t rank, int64_t microbatch) {
  const auto at = program.mesh.coordinate(rank);
  int64_t index = 0;
  for (AxisId axis : program.batch_axes) index = index * program.mesh.axes[axis].size + at[axis];
  const int64_t count = program.inputs[0].at("tokens").dims[0];
  return {(index * program.microbatches + microbatch) * count, count};
}

void fill_given(const GivenBatch& batch, const BatchSlice& slice, int64_t context,
                const std::vector<TokenRange>& ranges, const std::map<std::string, char*>& inputs) {
  const std::pair<const char*, const int32_t*> fields[] = {{"tokens", batch.tokens},
                                                           {"targets", batch.targets}};
  for (const auto& [name, values] : fields) {
    cut_tokens(reinterpret_cast<const char*>(values + slice.first * context),
               static_cast<size_t>(context) * sizeof(int32_t), context, slice.count, ranges, inputs.at(name));
  }
  std::vector<int64_t> numbers(static_cast<size_t>(slice.count));
  std::iota(numbers.begin(), numbers.end(), slice.first);
  number(numbers, ranges, inputs);
}

}  // namespace tenon
