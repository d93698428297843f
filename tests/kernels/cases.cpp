#include "cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tenon_sdk/kernel_problem.hpp"

namespace tenon::test {
namespace {

// Operands' names and dims as a signature has them.
struct Operand {
  std::string name;
  std::vector<std::string> dims;
};

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) {
    const size_t begin = word.find_first_not_of(' ');
    if (begin != std::string::npos) out.push_back(word.substr(begin));
  }
  return out;
}

std::vector<Operand> operands_of(const char* text) {
  std::vector<Operand> out;
  for (const std::string& word : words_of(text, ',')) {
    const size_t open = word.find('['), close = word.find(']');
    out.push_back({word.substr(0, open), words_of(word.substr(open + 1, close - open - 1), ' ')});
    for (std::string& dim : out.back().dims) dim.resize(std::min(dim.find('='), dim.size()));
  }
  return out;
}

std::optional<size_t> find(const std::vector<Operand>& operands, const std::string& name) {
  const auto it = std::ranges::find(operands, name, &Operand::name);
  if (it == operands.end()) return std::nullopt;
  return static_cast<size_t>(it - operands.begin());
}

const kernels::Signature& signature(const std::string& kind) {
  const kernels::Signature* found = kernels::find_signature(kind);
  if (found == nullptr) throw std::logic_error("no signature of " + kind);
  return *found;
}

}  // namespace

std::string text(const Size& n) {
  std::string text = "b s t h v g r d =";
  for (int64_t i : {n.b, n.s, n.t, n.h, n.v, n.g, n.r, n.d}) text += " " + std::to_string(i);
  return text;
}

std::vector<Size> small_sizes() {
  return {{1, 1, 1, 1, 1, 1, 1, 2},  {1, 3, 5, 7, 13, 1, 1, 4},   {2, 5, 3, 13, 7, 3, 1, 2},
          {3, 7, 7, 5, 17, 1, 3, 6}, {2, 13, 17, 3, 5, 2, 3, 10}, {1, 17, 13, 17, 31, 2, 2, 14},
          {2, 0, 3, 5, 4, 1, 2, 4},  {0, 3, 2, 4, 3, 2, 1, 2},    {1, 4, 0, 3, 2, 1, 2, 2}};
}

std::vector<Size> large_sizes() {
  return {{1, 67, 129, 65, 257, 2, 1, 34},
          {2, 130, 130, 129, 67, 1, 2, 64},
          {3, 65, 64, 300, 1000, 3, 2, 16},
          {1, 200, 200, 192, 256, 6, 1, 32},
          {1, 300, 600, 3, 5, 1, 2, 16}};
}

CaseMaker::CaseMaker(const Kernels& reference, uint32_t dtype, const Size& size, uint64_t seed)
    : reference_(reference), dtype_(dtype), n_(size), rng_(seed) {}

Tensor CaseMaker::random(std::vector<int64_t> dims, double scale) {
  Tensor t(dtype_, std::move(dims));
  std::normal_distribution<double> normal(0, scale);
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, normal(rng_));
  return t;
}

Tensor CaseMaker::indices(std::vector<int64_t> dims, int64_t low, int64_t limit) {
  Tensor t(TENON_I32, std::move(dims));
  std::uniform_int_distribution<int64_t> uniform(low, limit - 1);
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, static_cast<double>(uniform(rng_)));
  return t;
}

Tensor CaseMaker::targets(double padding) {
  Tensor t = indices({n_.b, n_.s}, 0, n_.v);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int64_t i = 0; i < t.elements(); ++i) {
    if (uniform(rng_) < padding) t.set(i, -1 - static_cast<double>(i % 3));
  }
  return t;
}

Tensor CaseMaker::range(int64_t rows, int64_t n, int64_t start) const {
  Tensor t(TENON_I32, {rows, n});
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, static_cast<double>(start + i % n));
  return t;
}

Op CaseMaker::embedding() {
  return {
      "embedding", {indices({n_.b, n_.s}, 0, n_.v), random({n_.v, n_.h})}, {real({n_.b, n_.s, n_.h})}, {}};
}

Op CaseMaker::layernorm() {
  Tensor x = random({n_.b, n_.s, n_.h}, 2);
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, x.at(i) + 1);
  return {"layernorm",
          {x, random({n_.h}), random({n_.h})},
          {real({n_.b, n_.s, n_.h}), real({n_.b, n_.s}), real({n_.b, n_.s})},
          {number("eps", 1e-2)}};
}

Op CaseMaker::rmsnorm() {
  return {"rmsnorm",
          {random({n_.b, n_.s, n_.h}, 2), random({n_.h})},
          {real({n_.b, n_.s, n_.h}), real({n_.b, n_.s})},
          {number("eps", 1e-2)}};
}

Op CaseMaker::add_norm(const Op& norm) {
  Op op = norm;
  op.kind = "add_" + norm.kind;
  op.in.insert(op.in.begin() + 1, random(norm.in[0].dims()));
  op.out.insert(op.out.begin(), real(norm.in[0].dims()));
  return op;
}

Op CaseMaker::linear() {
  return {"linear",
          {random({n_.b, n_.s, n_.h}), random({n_.g, n_.r, n_.d, n_.h})},
          {real({n_.b, n_.s, n_.g, n_.r, n_.d})},
          {}};
}

Op CaseMaker::linear_structured() {
  return {"linear",
          {random({n_.b, n_.s, n_.g, n_.d}), random({n_.h, n_.g, n_.d})},
          {real({n_.b, n_.s, n_.h})},
          {}};
}

Op CaseMaker::bias_add() {
  return {"bias_add",
          {random({n_.b, n_.s, n_.g, n_.h}), random({n_.g, n_.h})},
          {real({n_.b, n_.s, n_.g, n_.h})},
          {}};
}

Op CaseMaker::bias_gelu() {
  Op op = bias_add();
  op.kind = "bias_gelu";
  op.out.push_back(op.out[0]);
  return op;
}

Op CaseMaker::rope(bool inverse) {
  return {"rope",
          {random({n_.b, n_.s, n_.g, n_.r, n_.d}), indices({n_.b, n_.s}, 0, 5000)},
          {real({n_.b, n_.s, n_.g, n_.r, n_.d})},
          {number("theta", 10000), integer("inverse", inverse ? 1 : 0)}};
}

Op CaseMaker::attention(Positions positions) {
  Tensor qpos = range(n_.b, n_.s, 0), kpos = range(n_.b, n_.t, 0);
  if (positions == Positions::offset) qpos = range(n_.b, n_.s, std::max<int64_t>(0, n_.t - n_.s));
  if (positions == Positions::shuffled) {
    qpos = indices({n_.b, n_.s}, 0, 2 * std::max(n_.s, n_.t));
    kpos = indices({n_.b, n_.t}, 0, 2 * std::max(n_.s, n_.t));
  }
  if (positions == Positions::blind) {  // every second query sees nothing
    for (int64_t i = 0; i < qpos.elements(); i += 2) qpos.set(i, -1);
  }
  return {"attention",
          {random({n_.b, n_.s, n_.g, n_.r, n_.d}), random({n_.b, n_.t, n_.g, n_.d}),
           random({n_.b, n_.t, n_.g, n_.d}), qpos, kpos},
          {real({n_.b, n_.s, n_.g, n_.r, n_.d}), real({n_.b, n_.g, n_.r, n_.s})},
          {number("scale", 1.5 / std::sqrt(static_cast<double>(n_.d)))}};
}

Op CaseMaker::gelu() {
  return {"gelu", {random({n_.b, n_.s, n_.g, n_.h}, 2)}, {real({n_.b, n_.s, n_.g, n_.h})}, {}};
}

Op CaseMaker::swiglu() {
  return {
      "swiglu", {random({n_.b, n_.s, n_.h}, 2), random({n_.b, n_.s, n_.h})}, {real({n_.b, n_.s, n_.h})}, {}};
}

Op CaseMaker::dropout(double p) {
  Tensor sample(TENON_I64, {n_.b}), step(TENON_I64, {});
  for (int64_t i = 0; i < n_.b; ++i) sample.set(i, 0x123456789abcp0 + static_cast<double>(i));
  step.set(0, 70001);
  return {"dropout",
          {random({n_.b, n_.s, n_.g, n_.h}), sample, indices({n_.b, n_.s}, 0, 4096), step},
          {real({n_.b, n_.s, n_.g, n_.h})},
          {number("p", p), integer("key", 0x0123456789abcdef)}};
}

Op CaseMaker::cross_entropy(double padding) {
  return {"cross_entropy",
          {random({n_.b, n_.s, n_.v}, 3), targets(padding)},
          {Tensor(TENON_F64, {}), Tensor(TENON_I64, {}), real({n_.b, n_.s})},
          {}};
}

Op CaseMaker::linear_cross_entropy(double padding) {
  const double scale = 3 / std::sqrt(static_cast<double>(n_.g * n_.h));
  return {"linear_cross_entropy",
          {random({n_.b, n_.s, n_.g, n_.h}), random({n_.v, n_.g, n_.h}, scale), targets(padding)},
          {Tensor(TENON_F64, {}), Tensor(TENON_I64, {})},
          {}};
}

Op CaseMaker::linear_cross_entropy_grad(const Op& forward) const {
  Op op = forward;
  op.kind = "linear_cross_entropy_grad";
  for (size_t i : {1, 0}) op.out.push_back(real(forward.in[i].dims()));
  return op;
}

// Half of the choices find a slot if they are spread evenly. The last of several samples does not exist.
Op CaseMaker::route_topk(Logits kind, bool renormalise, double aux) {
  const int64_t experts = std::min<int64_t>(n_.v, 7), k = std::min<int64_t>(experts, 3);
  const int64_t group = std::max<int64_t>(1, n_.s % 2 == 0 ? n_.s / 2 : n_.s);
  const int64_t capacity = std::max<int64_t>(1, group * k / (2 * experts));
  Tensor logits = random({n_.b, n_.s, experts});
  for (int64_t i = 0; kind == Logits::tied && i < logits.elements(); ++i)
    logits.set(i, std::round(logits.at(i)));
  Tensor sample(TENON_I64, {n_.b});
  for (int64_t i = 0; i < n_.b; ++i) sample.set(i, i > 0 && i == n_.b - 1 ? -1 : static_cast<double>(i));
  return {"route_topk",
          {logits, sample},
          {real({n_.b, n_.s, k}), Tensor(TENON_I32, {n_.b, n_.s, k}), Tensor(TENON_I32, {n_.b, n_.s, k}),
           Tensor(TENON_F64, {})},
          {integer("k", k), integer("group", group), integer("capacity", capacity),
           integer("renormalise", renormalise ? 1 : 0), number("aux", aux)}};
}

CaseMaker::Routed CaseMaker::routed() {
  const Op route = route_topk(Logits::tied, false, 0);
  const Result done = reference_.run(route);
  EXPECT_EQ(done.code, TENON_OK) << done.message;
  const int64_t group = route.attrs[1].exact, capacity = route.attrs[2].exact;
  return {done.out[1], done.out[2], {n_.b, n_.s / group, route.in[0].dims()[2], capacity, n_.h}, group};
}

Op CaseMaker::dispatch() {
  const Routed to = routed();
  return {"dispatch",
          {random({n_.b, n_.s, n_.h}), to.expert, to.slot},
          {real(to.slots)},
          {integer("group", to.group), integer("experts", to.slots[2]), integer("capacity", to.slots[3])}};
}

Op CaseMaker::combine() {
  const Routed from = routed();
  return {"combine",
          {random(from.slots), random(from.expert.dims()), from.expert, from.slot},
          {real({n_.b, n_.s, n_.h})},
          {integer("group", from.group)}};
}

Op CaseMaker::grouped_linear() {
  const int64_t experts = std::min<int64_t>(n_.v, 3);
  return {"grouped_linear",
          {random({n_.b, 2, experts, n_.t, n_.h}), random({experts, n_.g, n_.r, n_.d, n_.h})},
          {real({n_.b, 2, experts, n_.t, n_.g, n_.r, n_.d})},
          {}};
}

Op CaseMaker::grouped_linear_structured() {
  const int64_t experts = std::min<int64_t>(n_.v, 3);
  return {"grouped_linear",
          {random({n_.b, 2, experts, n_.t, n_.g, n_.d}), random({experts, n_.h, n_.g, n_.d})},
          {real({n_.b, 2, experts, n_.t, n_.h})},
          {}};
}

Tensor slice(const Tensor& whole, size_t dim, int64_t start, int64_t size) {
  std::vector<int64_t> dims = whole.dims();
  dims[dim] = size;
  int64_t inner = 1;
  for (size_t d = dim + 1; d < dims.size(); ++d) inner *= dims[d];
  const int64_t row = inner * size, step = inner * whole.dims()[dim];
  Tensor out(whole.dtype(), std::move(dims));
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, whole.at(i / row * step + start * inner + i % row));
  return out;
}

Op CaseMaker::embedding_shard(int64_t start, int64_t rows) {
  return {"embedding_shard",
          {indices({n_.b, n_.s}, 0, n_.v), random({rows, n_.h})},
          {real({n_.b, n_.s, n_.h})},
          {integer("start", start)}};
}

Op CaseMaker::cross_entropy_shard(const Op& whole, int64_t start, int64_t rows) const {
  return {"cross_entropy_shard",
          {slice(whole.in[0], 2, start, rows), whole.in[1]},
          {real({n_.b, n_.s}), real({n_.b, n_.s})},
          {integer("start", start)}};
}

Op CaseMaker::attention_merge() {
  const Op block = attention(Positions::shuffled);
  const Result done = reference_.run(block);
  EXPECT_EQ(done.code, TENON_OK) << done.message;
  return {"attention_merge", done.out, {real(done.out[0].dims()), real(done.out[1].dims())}, {}};
}

Op CaseMaker::of_signature(const std::string& kind) {
  const kernels::Signature& row = signature(kind);
  const auto dims = [&](const Operand& operand) {
    std::vector<int64_t> out;
    for (const std::string& letter : operand.dims) {
      const std::pair<const char*, int64_t> sizes[] = {{"b", n_.b}, {"s", n_.s}, {"t", n_.t}, {"h", n_.h},
                                                       {"v", n_.v}, {"g", n_.g}, {"r", n_.r}, {"d", n_.d}};
      const auto known = std::ranges::find(sizes, letter, [](const auto& entry) { return entry.first; });
      if (known != std::end(sizes))
        out.push_back(known->second);
      else if (letter.ends_with(".."))
        out.insert(out.end(), {n_.g, n_.h});
      else
        throw std::logic_error(kind + ": no size for " + letter);
    }
    return out;
  };
  Op op{kind, {}, {}, {}};
  for (const Operand& operand : operands_of(row.inputs)) op.in.push_back(random(dims(operand), 2));
  for (const Operand& operand : operands_of(row.outputs)) op.out.push_back(real(dims(operand)));
  for (const std::string& attr : words_of(row.attrs, ',')) {
    const std::vector<std::string> words = words_of(attr, ' ');
    op.attrs.push_back(words[1] == "int" ? integer(words[0], 1) : number(words[0], 1.5));
  }
  return op;
}

std::vector<Op> CaseMaker::backward(const Op& f, const Tensor& dy) {
  const Result done = reference_.run(f);
  EXPECT_EQ(done.code, TENON_OK) << done.message;
  if (f.kind == "rope") {
    return {{"rope",
             {dy, f.in[1]},
             {real(f.in[0].dims())},
             {f.attrs[0], integer("inverse", 1 - f.attrs[1].exact)}}};
  }
  if (f.kind == "dropout")
    return {{"dropout", {dy, f.in[1], f.in[2], f.in[3]}, {real(f.in[0].dims())}, f.attrs}};
  const kernels::Signature& forward = signature(f.kind);
  const std::vector<Operand> in = operands_of(forward.inputs), out = operands_of(forward.outputs);
  std::vector<Op> ops;
  for (const std::string kind : {forward.input_grad, forward.weight_grad}) {
    if (kind.empty()) continue;
    const kernels::Signature& row = signature(kind);
    Op op{kind, {}, {}, {}};
    for (const Operand& operand : operands_of(row.inputs)) {
      const auto input = find(in, operand.name), output = find(out, operand.name);
      if (operand.name == "d" + out[0].name)
        op.in.push_back(dy);
      else
        op.in.push_back(input ? f.in[*input] : done.out.at(output.value()));
    }
    for (size_t i : gradients_of(kind, f.kind)) op.out.emplace_back(f.in[i].dtype(), f.in[i].dims());
    for (const std::string& attr : words_of(row.attrs, ',')) {
      const auto given = std::ranges::find(f.attrs, attr.substr(0, attr.find(' ')), &Attr::key);
      if (given != f.attrs.end()) op.attrs.push_back(*given);
    }
    ops.push_back(std::move(op));
  }
  if (ops.empty()) ADD_FAILURE() << "no backward for " << f.kind;
  return ops;
}

std::vector<size_t> gradients_of(const std::string& backward, const std::string& forward) {
  if (backward == forward) return {0};
  const std::vector<Operand> in = operands_of(signature(forward).inputs);
  std::vector<size_t> out;
  for (const Operand& operand : operands_of(signature(backward).outputs))
    out.push_back(find(in, operand.name.substr(1)).value());
  return out;
}

void CaseMaker::add_plain(std::vector<Case>& cases, const std::string& name, const Op& op) {
  cases.push_back({name, op});
  if (signature(op.kind).accumulate) {
    Op more = op;
    more.flags = TENON_KERNEL_ACCUMULATE;
    for (Tensor& t : more.out) {
      if (t.dtype() == dtype_) t = random(t.dims());
    }
    cases.push_back({name + ", accumulating", more});
  }
  if (signature(op.kind).inplace) {
    Op there = op;
    there.inplace = 0;
    cases.push_back({name + ", in place", there});
  }
}

void CaseMaker::add_forward(std::vector<Case>& cases, const std::string& name, const Op& op) {
  add_plain(cases, op.kind + name, op);
  for (const Op& back : backward(op, random(op.out[0].dims()))) add_plain(cases, back.kind + name, back);
}

void CaseMaker::add_shape_ops(std::vector<Case>& cases) {
  for (uint32_t dtype : {dtype_, uint32_t{TENON_I64}, uint32_t{TENON_I32}}) {
    const auto ramp = [&](std::vector<int64_t> dims, double start) {
      Tensor t(dtype, std::move(dims));
      for (int64_t i = 0; i < t.elements(); ++i) t.set(i, start + static_cast<double>(i));
      return t;
    };
    add_plain(cases, "add",
              {"add", {ramp({n_.b, n_.h}, 3), ramp({n_.b, n_.h}, -7)}, {ramp({n_.b, n_.h}, 0)}, {}});
    const Tensor x = ramp({n_.b, n_.s, n_.h}, 1);
    for (int64_t dim = 0; dim < 3; ++dim) {
      const auto d = static_cast<size_t>(dim);
      const int64_t start = x.dims()[d] / 3, size = x.dims()[d] - start - x.dims()[d] / 4;
      std::vector<int64_t> part = x.dims(), joined = x.dims();
      part[d] = size;
      joined[d] = x.dims()[d] + 2 * size;
      cases.push_back({"slice of dim " + std::to_string(dim),
                       {"slice",
                        {x},
                        {ramp(part, 0)},
                        {integer("dim", dim), integer("start", start), integer("size", size)}}});
      cases.push_back(
          {"concat along dim " + std::to_string(dim),
           {"concat", {ramp(part, 5), x, ramp(part, 9)}, {ramp(joined, 0)}, {integer("dim", dim)}}});
    }
  }
}

void CaseMaker::add_fused(std::vector<Case>& cases) {
  for (const Op& norm : {layernorm(), rmsnorm()}) add_plain(cases, "add_" + norm.kind, add_norm(norm));
  add_plain(cases, "bias_gelu", bias_gelu());
  for (double padding : {0.0, 0.4, 1.0}) {
    const Op head = linear_cross_entropy(padding);
    const std::string with = " with padding " + std::to_string(padding);
    add_plain(cases, head.kind + with, head);
    add_plain(cases, "linear_cross_entropy_grad" + with, linear_cross_entropy_grad(head));
  }
}

void CaseMaker::add_sums(std::vector<Case>& cases) {
  cases.push_back({"sqnorm", {"sqnorm", {random({n_.b, n_.s, n_.h})}, {Tensor(TENON_F64, {})}, {}}});
  cases.push_back({"sqnorm of a scalar", {"sqnorm", {random({})}, {Tensor(TENON_F64, {})}, {}}});
  const int64_t elements = n_.b * n_.s * n_.h;
  for (int64_t chunk : {int64_t{1}, int64_t{7}, elements + 1}) {
    cases.push_back({"sqnorm_chunks of " + std::to_string(chunk),
                     {"sqnorm_chunks",
                      {random({elements})},
                      {Tensor(TENON_F64, {(elements + chunk - 1) / chunk})},
                      {integer("chunk", chunk)}}});
  }
  Tensor terms(TENON_F64, {n_.v});
  for (int64_t i = 0; i < terms.elements(); ++i) terms.set(i, 1.0 / static_cast<double>(i + 3));
  cases.push_back({"sum", {"sum", {terms}, {Tensor(TENON_F64, {})}, {}}});
  for (uint32_t dtype : {dtype_, uint32_t{TENON_I64}, uint32_t{TENON_I32}}) {
    cases.push_back({"zeros", {"zeros", {}, {Tensor(dtype, {n_.b, n_.h})}, {}}});
  }
  for (const auto& [clip, count] : {std::pair{0.0, 7.0}, {0.5, 3.0}, {1e9, 3.0}, {1.0, 0.0}}) {
    Op op{"clip_scale", {}, {Tensor(TENON_F64, {}), Tensor(TENON_F64, {})}, {number("clip", clip)}};
    for (double square : {2.0, 0.25, 40.0}) {
      op.in.emplace_back(TENON_F64, std::vector<int64_t>{});
      op.in.back().set(0, square);
    }
    op.in.emplace_back(TENON_I64, std::vector<int64_t>{});
    op.in.back().set(0, count);
    cases.push_back({"clip_scale", op});
  }
}

void CaseMaker::add_shards(std::vector<Case>& cases) {
  const int64_t start = n_.v / 3, rows = n_.v - start - n_.v / 4;
  const Op embedding = embedding_shard(start, rows);
  add_plain(cases, "embedding_shard", embedding);
  add_plain(cases, "embedding_shard_wgrad",
            {"embedding_shard_wgrad",
             {random({n_.b, n_.s, n_.h}), embedding.in[0]},
             {real({rows, n_.h})},
             embedding.attrs});
  for (double padding : {0.0, 0.4, 1.0}) {
    const Op whole = cross_entropy(padding);
    const Result done = reference_.run(whole);
    EXPECT_EQ(done.code, TENON_OK) << done.message;
    const Op shard = cross_entropy_shard(whole, start, rows);
    add_plain(cases, "cross_entropy_shard", shard);
    add_plain(cases, "cross_entropy_shard_dgrad",
              {"cross_entropy_shard_dgrad",
               {shard.in[0], shard.in[1], done.out[2]},
               {real(shard.in[0].dims())},
               shard.attrs});
    add_plain(cases, "cross_entropy_join",
              {"cross_entropy_join",
               {random({3, n_.b, n_.s}, 4), random({n_.b, n_.s}), whole.in[1]},
               {Tensor(TENON_F64, {}), Tensor(TENON_I64, {}), real({n_.b, n_.s})},
               {}});
  }
  add_plain(cases, "attention_merge", attention_merge());
}

void CaseMaker::add_experts(std::vector<Case>& cases) {
  for (Logits logits : {Logits::distinct, Logits::tied}) {
    for (bool renormalise : {false, true}) {
      add_forward(
          cases,
          std::string(logits == Logits::tied ? " with ties" : "") + (renormalise ? ", renormalised" : ""),
          route_topk(logits, renormalise, 0.7));
    }
  }
  add_forward(cases, "", dispatch());
  add_forward(cases, "", combine());
  add_forward(cases, "", grouped_linear());
  add_forward(cases, " with structured input", grouped_linear_structured());
}

std::vector<Case> CaseMaker::all() {
  std::vector<Case> cases;
  add_forward(cases, "", embedding());
  add_forward(cases, "", layernorm());
  add_forward(cases, "", rmsnorm());
  add_forward(cases, "", linear());
  add_forward(cases, " with structured input", linear_structured());
  add_forward(cases, "", bias_add());
  add_forward(cases, "", rope(false));
  add_forward(cases, ", causal", attention(Positions::causal));
  add_forward(cases, ", offset", attention(Positions::offset));
  add_forward(cases, ", shuffled", attention(Positions::shuffled));
  add_forward(cases, ", blind", attention(Positions::blind));
  add_forward(cases, "", gelu());
  add_forward(cases, "", swiglu());
  for (double p : {0.0, 0.1, 0.75}) add_forward(cases, " of " + std::to_string(p), dropout(p));
  for (double padding : {0.0, 0.4, 1.0}) {
    add_forward(cases, " with padding " + std::to_string(padding), cross_entropy(padding));
  }
  add_experts(cases);
  add_shards(cases);
  add_fused(cases);
  add_shape_ops(cases);
  add_sums(cases);
  add_others(cases);
  return cases;
}

void CaseMaker::add_others(std::vector<Case>& cases) {
  for (const std::string& kind : kinds_without_maker()) add_forward(cases, "", of_signature(kind));
}

std::vector<std::string> kinds_without_maker() {
  static const std::set<std::string> kMade = {"embedding", "layernorm", "rmsnorm",       "linear",
                                              "rope",      "attention", "gelu",          "swiglu",
                                              "dropout",   "bias_add",  "cross_entropy", "route_topk",
                                              "dispatch",  "combine",   "grouped_linear"};
  std::vector<std::string> out;
  for (const kernels::Signature& row : kernels::signatures()) {
    const bool forward = row.input_grad[0] != '\0' || row.weight_grad[0] != '\0';
    if (forward && !kMade.contains(row.kind)) out.emplace_back(row.kind);
  }
  return out;
}

}  // namespace tenon::test
