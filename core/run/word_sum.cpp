#include "run/word_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/hash.h"

namespace tenon {

Result<std::unique_ptr<WordSum>> WordSum::open(RankDevice& device, size_t words) {
  std::unique_ptr<WordSum> out(new WordSum(device, words));
  if (device.id().world == 1) return out;
  std::vector<AxisId> axes(device.mesh().axes.size());
  std::iota(axes.begin(), axes.end(), 0u);
  TENON_TRY(tenon_comm_group * everyone, device.group(axes));
  tenon_comm_op op{};
  op.struct_size = sizeof op;
  op.kind = TENON_COMM_ALL_REDUCE;
  op.reduce = TENON_SUM;
  op.dtype = TENON_I64;
  op.src = op.dst = out->words_.data();
  op.count = words;
  op.peer = -1;
  const tenon_comm_op* const ops[] = {&op};
  const auto& comm = device.plugins().comm;
  TENON_TRY(out->sum_, open_handle<tenon_comm_plan>(comm.id, comm.table->release, [&](auto** o, auto* e) {
              return comm.table->prepare(everyone, ops, 1, o, e);
            }));
  return out;
}

Status WordSum::add_up(const std::string& what) {
  if (sum_ == nullptr) return {};
  const auto& comm = *device_.plugins().comm.table;
  const tenon_stream stream{{kDLCPU, 0}, nullptr};
  tenon_error error = empty_abi_error();
  tenon_code code = comm.start(sum_.get(), &stream, &error);
  if (code >= 0) code = comm.wait_host(sum_.get(), -1, &error);
  if (code >= 0) return {};
  return from_abi(code, error,
                  fmt::format("{}, {}, rank {}", what, device_.plugins().comm.id, device_.id().rank));
}

// Rank 0 alone has a summand that is not zero, so that all see its digest; then those who have another say
// so.
Status WordSum::agree(const std::string& what, const std::string& mine) {
  if (sum_ == nullptr) return {};
  const auto digest = xxh3_128(std::as_bytes(std::span(mine)));
  const auto word = [&](size_t i) { return static_cast<int64_t>(digest[i]); };
  std::ranges::fill(words_, 0);
  for (size_t i = 0; device_.id().rank == 0 && i < digest.size(); ++i) words_[i] = word(i);
  TENON_CHECK(add_up(what));
  const bool same = words_[0] == word(0) && words_[1] == word(1);
  std::ranges::fill(words_, 0);
  words_[0] = same ? 0 : 1;
  TENON_CHECK(add_up(what));
  if (words_[0] == 0) return {};
  return Error{
      "E030",
      fmt::format("{} of {} ranks differ from rank 0 in what they pass", words_[0], device_.id().world), what,
      "make the same calls with equal arguments in all processes", TENON_E_STATE};
}

}  // namespace tenon
