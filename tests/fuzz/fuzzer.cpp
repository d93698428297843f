// What libFuzzer calls for the target TENON_FUZZ_TARGET: its inputs, and how documents are mutated value by
// value.
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "base/json.h"
#include "fuzz.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace tenon::fuzz {
namespace {

const Target& target() { return TENON_FUZZ_TARGET(); }

void all_values(Json& value, std::vector<Json*>& out) {
  out.push_back(&value);
  for (Json& inner : value) {
    if (value.is_structured()) all_values(inner, out);
  }
}

int64_t number(std::mt19937& random) {
  const int64_t power = int64_t{1} << random() % 63;
  switch (random() % 4) {
    case 0: return static_cast<int64_t>(random() % 9) - 1;
    case 1: return power + static_cast<int64_t>(random() % 3) - 1;
    case 2: return -power;
    default: return static_cast<int64_t>(random() % 100);
  }
}

std::string mutated(std::string text) {
  text.resize(text.size() + 16);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), text.size() - 16, text.size()));
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::ignore);
}

// One change: another value, a value from elsewhere, one twice, one less.
void change(Json& document, std::mt19937& random) {
  std::vector<Json*> values;
  all_values(document, values);
  Json& value = *values[random() % values.size()];
  const Json other = *values[random() % values.size()];
  switch (random() % 6) {
    case 0: value = other; return;
    case 1:
      if (value.is_array() && !value.empty())
        value.erase(random() % value.size());
      else if (value.is_object() && !value.empty())
        value.erase(std::next(value.begin(), static_cast<ptrdiff_t>(random() % value.size())).key());
      return;
    case 2:
      if (value.is_array() && !value.empty()) value.push_back(value[random() % value.size()]);
      return;
    case 3: {
      const Json choices[] = {nullptr,       true,           0,         -1, 0.5, 1e300, "",
                              Json::array(), Json::object(), UINT64_MAX};
      value = choices[random() % std::size(choices)];
      return;
    }
    default:
      if (value.is_number())
        value = number(random);
      else if (value.is_string())
        value = Json::parse(mutated(value.get<std::string>()), nullptr, false);
  }
}

}  // namespace
}  // namespace tenon::fuzz

using namespace tenon;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::feed(fuzz::target(), {reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::mt19937 random(seed);
  if (fuzz::target().form == fuzz::Form::bytes || random() % 4 == 0)
    return LLVMFuzzerMutate(data, size, max_size);
  Json document = Json::parse(data, data + size, nullptr, false);
  if (document.is_discarded()) return LLVMFuzzerMutate(data, size, max_size);
  for (unsigned left = 1 + random() % 3; left > 0; --left) fuzz::change(document, random);
  std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (data[size - 1] == '\n') text += '\n';  // some documents must end so
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
