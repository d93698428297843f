#include "run/staging.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tenon {
namespace {

constexpr size_t kLine = 64;                // alignment, and the least that lies between data and the page
constexpr unsigned char kUnwritten = 0x80;  // as any integer far below -1
constexpr unsigned char kBehind = 0xA5;

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

template <class Int>
const Int* beyond(const StagingBuffer& buffer, const ValueRange& range) {
  const auto* begin = reinterpret_cast<const Int*>(buffer.data());
  const auto* end = begin + buffer.size() / sizeof(Int);
  const auto* it = std::find_if(begin, end, [range](Int v) { return v < range.least || v >= range.limit; });
  return it == end ? nullptr : it;
}

template <class Int>
Status check_values(const StagingBuffer& buffer, const FieldDeclaration& field, const ValueRange& range,
                    const std::string& who) {
  const Int* value = beyond<Int>(buffer, range);
  if (value == nullptr) return {};
  Int unwritten{};
  std::memset(&unwritten, kUnwritten, sizeof unwritten);
  const auto at = value - reinterpret_cast<const Int*>(buffer.data());
  const std::string what = *value == unwritten
                               ? "left value {1} of field '{2}' unwritten"
                               : "gave {0} as value {1} of field '{2}', whose values are {3} to {4}";
  return Error{
      "D007",
      who + " " + fmt::format(fmt::runtime(what), *value, at, field.name, range.least, range.limit - 1),
      "/data/plugin", "correct the plugin, or the data", TENON_E_RECIPE};
}

}  // namespace

StagingBuffer::StagingBuffer(StagingBuffer&& other) noexcept { *this = std::move(other); }

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

Status StagingBuffer::resize(size_t bytes) {
  if (data_ != nullptr && bytes == bytes_) return {};
  const size_t writable = round_up(round_up(bytes, kLine) + kLine, page());
  void* const at =
      mmap(nullptr, writable + page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return Error{"E010", fmt::format("no memory for {} bytes of a batch", bytes), "", "", TENON_E_MEMORY};
  StagingBuffer fresh;
  fresh.mapped_ = static_cast<char*>(at);
  fresh.mapped_bytes_ = writable + page();
  mprotect(fresh.mapped_ + writable, page(), PROT_NONE);
  fresh.data_ = fresh.mapped_ + writable - kLine - round_up(bytes, kLine);
  fresh.bytes_ = bytes;
  *this = std::move(fresh);
  return {};
}

void StagingBuffer::poison() {
  std::memset(data_, kUnwritten, bytes_);
  std::memset(data_ + bytes_, kBehind, round_up(bytes_, kLine) + kLine - bytes_);
}

bool StagingBuffer::is_overrun() const {
  const auto* behind = reinterpret_cast<const unsigned char*>(data_ + bytes_);
  return !std::all_of(behind, behind + round_up(bytes_, kLine) + kLine - bytes_,
                      [](unsigned char c) { return c == kBehind; });
}

Status check_written(const StagingBuffer& buffer, const FieldDeclaration& field, const ValueRange& range,
                     const std::string& who) {
  if (buffer.is_overrun()) {
    return Error{"D007",
                 fmt::format("{} wrote past the {} bytes of field '{}'", who, buffer.size(), field.name),
                 "/data/plugin", "correct the plugin", TENON_E_RECIPE};
  }
  if (field.dtype == Dtype::i32) return check_values<int32_t>(buffer, field, range, who);
  if (field.dtype == Dtype::i64) return check_values<int64_t>(buffer, field, range, who);
  return {};
}

}  // namespace tenon
