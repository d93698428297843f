#include "transfers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "layouts.h"

namespace tenon::mutants {

uint32_t Channels::find(std::vector<int64_t> key, size_t members) {
  const auto [at, fresh] = known_.try_emplace(std::move(key), static_cast<uint32_t>(sizes_.size()));
  if (fresh) sizes_.push_back(members);
  return at->second;
}

namespace {

std::vector<int64_t> key_of(const std::vector<AxisId>& axes, const std::vector<int32_t>& members) {
  std::vector<int64_t> key(axes.begin(), axes.end());
  key.push_back(-1);
  key.insert(key.end(), members.begin(), members.end());
  return key;
}

}  // namespace

uint32_t Channels::collective(const std::vector<AxisId>& axes, const std::vector<int32_t>& members) {
  return find(key_of(axes, members), members.size());
}

uint32_t Channels::pair(const std::vector<AxisId>& axes, const std::vector<int32_t>& members, size_t from,
                        size_t to) {
  std::vector<int64_t> key = key_of(axes, members);
  key.insert(key.end(), {-1, static_cast<int64_t>(from), static_cast<int64_t>(to)});
  return find(std::move(key), 2);
}

// -- what an instruction brings ---------------------------------------------------------------------

namespace {

std::vector<uint64_t> even_counts(const Instr& instr, TransferKind kind, uint64_t members) {
  const uint64_t in = instr.in.empty() ? 0 : static_cast<uint64_t>(instr.in[0].elements());
  switch (kind) {
    case TransferKind::reduce_scatter: return std::vector<uint64_t>(members, in / members);
    case TransferKind::all_to_all: return std::vector<uint64_t>(2 * members, in / members);
    case TransferKind::all_gather: return std::vector<uint64_t>(members, in);
    default: return {};
  }
}

// Uneven parts, of the members of a bucket.
std::vector<uint64_t> counts_of(const Program& program, const Instr& instr, TransferKind kind,
                                const Mesh& mesh, int64_t rank) {
  if (instr.layout < 0) return even_counts(instr, kind, static_cast<uint64_t>(mesh.size(instr.axes)));
  const FlatLayout& layout = layout_of(program, instr.layout);
  const auto depths = depths_of(layout, instr.axes);
  require(depths.has_value(), "a transfer runs over axes that do not cut its bucket");
  const auto shares = shares_of(program.mesh, layout, *depths, member_of(program, layout, rank));
  return {shares.begin(), shares.end()};
}

uint64_t sum(const std::vector<uint64_t>& counts, size_t first, size_t last) {
  return std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(first),
                         counts.begin() + static_cast<std::ptrdiff_t>(last), uint64_t{0});
}

// Elements that a member reads and writes.
struct Reach {
  uint64_t read = 0, written = 0;
};
Reach reach_of(const Post& post, size_t members) {
  const auto part = [&](size_t i) { return i < post.counts.size() ? post.counts[i] : 0; };
  switch (post.kind) {
    case TransferKind::reduce_scatter: return {sum(post.counts, 0, post.counts.size()), part(post.member)};
    case TransferKind::all_gather: return {part(post.member), sum(post.counts, 0, post.counts.size())};
    case TransferKind::all_to_all:
      return {sum(post.counts, 0, members), sum(post.counts, members, 2 * members)};
    case TransferKind::send: return {post.count, 0};
    case TransferKind::recv: return {0, post.count};
    default: return {post.count, post.count};
  }
}

// tenon/comm.h: what is written may be what is read in two kinds, and else shares no byte with it.
void check_apart(const Post& post, const Reach& reach, uint64_t size) {
  const char *src = post.src, *dst = post.dst;
  const bool in_place = post.kind == TransferKind::all_reduce || post.kind == TransferKind::broadcast;
  require((in_place && src == dst) || src + reach.read * size <= dst || dst + reach.written * size <= src,
          "a transfer writes over what it reads");
}

}  // namespace

Post post_of(const Program& program, const Instr& instr, const Mesh& mesh, int64_t rank, RankMemory& memory,
             Channels& channels) {
  Post post;
  post.kind = transfer_of(instr);
  if (post.kind == TransferKind::none) throw Refused("no transfer of this kind");
  require(!instr.in.empty() || !instr.out.empty(), "a transfer of nothing");
  for (size_t i = 0; i < instr.axes.size(); ++i) {
    require(instr.axes[i] < mesh.axes.size(), "a transfer runs over an axis that the mesh lacks");
    require(std::ranges::count(instr.axes, instr.axes[i]) == 1, "a transfer runs over an axis twice");
  }
  const std::vector<int32_t> members = mesh.group(rank, instr.axes);
  const size_t me =
      static_cast<size_t>(std::ranges::find(members, static_cast<int32_t>(rank)) - members.begin());
  const Operand& operand = instr.in.empty() ? instr.out[0] : instr.in[0];
  post.dtype = operand.dtype;
  post.count = bytes_of(operand) / static_cast<uint64_t>(size_of(operand.dtype));
  post.reduction = instr.reduction;
  post.peer = instr.peer;
  const bool one_way = is_one_way(post.kind);
  if (one_way || post.kind == TransferKind::broadcast)
    require(instr.peer >= 0 && static_cast<size_t>(instr.peer) < members.size(), "no such peer");
  post.counts = counts_of(program, instr, post.kind, mesh, rank);
  post.member = me;
  const Reach reach = reach_of(post, members.size());
  const auto size = static_cast<uint64_t>(size_of(operand.dtype));
  if (post.kind != TransferKind::recv)
    post.src = memory.at(program, operand.buffer, operand.offset, reach.read * size);
  if (post.kind != TransferKind::send) {
    require(!instr.out.empty(), "a transfer writes nothing");
    post.dst = memory.at(program, instr.out[0].buffer, instr.out[0].offset, reach.written * size);
  }
  if (!one_way) {
    check_apart(post, reach, size);
    post.channel = channels.collective(instr.axes, members);
    return post;
  }
  const auto peer = static_cast<size_t>(instr.peer);
  const bool sends = post.kind == TransferKind::send;
  require(peer != me, "a rank sends to itself");
  post.channel = channels.pair(instr.axes, members, sends ? me : peer, sends ? peer : me);
  post.member = sends ? 0 : 1;
  return post;
}

// -- what comes of it -------------------------------------------------------------------------------

namespace {

void check_agree(const std::vector<const Post*>& posts) {
  for (const Post* post : posts) {
    const Post& first = *posts.front();
    const bool pair = is_one_way(first.kind);
    const bool kinds = pair ? is_one_way(post->kind) && (post == &first || post->kind != first.kind)
                            : post->kind == first.kind;
    const bool counts = post->kind == TransferKind::all_gather || post->count == first.count;
    const bool peers = pair || post->peer == first.peer;
    if (kinds && counts && peers && post->dtype == first.dtype && post->reduction == first.reduction &&
        post->counts == first.counts)
      continue;
    throw Fault("the members of a transfer do not agree");
  }
}

// The fixed tree of tenon/comm.h over members [lo, lo + n).
template <class T>
T tree(const std::vector<const Post*>& posts, size_t lo, size_t n, uint64_t at) {
  if (n == 1) {
    T out;
    std::memcpy(&out, posts[lo]->src + at * sizeof(T), sizeof(T));
    return out;
  }
  const size_t half = std::bit_floor(n - 1);
  const T a = tree<T>(posts, lo, half, at), b = tree<T>(posts, lo + half, n - half, at);
  return posts[0]->reduction == Reduction::max ? std::max(a, b) : static_cast<T>(a + b);
}

template <class T>
std::vector<char> reduce_as(const std::vector<const Post*>& posts, uint64_t count) {
  std::vector<char> out(count * sizeof(T));
  for (uint64_t i = 0; i < count; ++i) {
    const T value = tree<T>(posts, 0, posts.size(), i);
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
  return out;
}

std::vector<char> reduce(const std::vector<const Post*>& posts, uint64_t count) {
  switch (posts[0]->dtype) {
    case Dtype::f64: return reduce_as<double>(posts, count);
    case Dtype::f32: return reduce_as<float>(posts, count);
    case Dtype::i64: return reduce_as<int64_t>(posts, count);
    case Dtype::i32: return reduce_as<int32_t>(posts, count);
    default: throw Fault("no reduction for this dtype");
  }
}

void copy(char* to, const char* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

// Sources are read before anything is written.
void perform(const std::vector<const Post*>& posts) {
  check_agree(posts);
  const size_t n = posts.size();
  const auto size = static_cast<uint64_t>(size_of(posts[0]->dtype));
  const uint64_t bytes = posts[0]->count * size;
  switch (posts[0]->kind) {
    case TransferKind::all_reduce: {
      const std::vector<char> all = reduce(posts, posts[0]->count);
      for (const Post* post : posts) copy(post->dst, all.data(), bytes);
      return;
    }
    case TransferKind::reduce_scatter: {
      const std::vector<char> all = reduce(posts, sum(posts[0]->counts, 0, n));
      uint64_t at = 0;
      for (size_t i = 0; i < n; at += posts[0]->counts[i++] * size)
        copy(posts[i]->dst, all.data() + at, posts[0]->counts[i] * size);
      return;
    }
    case TransferKind::all_gather: {
      std::vector<char> all;
      for (size_t i = 0; i < n; ++i)
        all.insert(all.end(), posts[i]->src, posts[i]->src + posts[0]->counts[i] * size);
      for (const Post* post : posts) copy(post->dst, all.data(), all.size());
      return;
    }
    case TransferKind::broadcast: {
      const Post& root = *posts[static_cast<size_t>(posts[0]->peer)];
      const std::vector<char> all(root.src, root.src + bytes);
      for (const Post* post : posts) copy(post->dst, all.data(), bytes);
      return;
    }
    case TransferKind::all_to_all: {
      const uint64_t part = posts[0]->counts[0] * size;
      std::vector<std::vector<char>> sources;
      for (const Post* post : posts) sources.emplace_back(post->src, post->src + n * part);
      for (size_t to = 0; to < n; ++to) {
        for (size_t from = 0; from < n; ++from)
          copy(posts[to]->dst + from * part, sources[from].data() + to * part, part);
      }
      return;
    }
    case TransferKind::permute: {
      std::vector<std::vector<char>> sources;
      for (const Post* post : posts) sources.emplace_back(post->src, post->src + bytes);
      const auto ring = static_cast<int64_t>(n);
      for (int64_t from = 0; from < ring; ++from) {
        const int64_t to = ((from + posts[0]->peer) % ring + ring) % ring;
        copy(posts[static_cast<size_t>(to)]->dst, sources[static_cast<size_t>(from)].data(), bytes);
      }
      return;
    }
    default: copy(posts[1]->dst, posts[0]->src, bytes);
  }
}

}  // namespace tenon::mutants
