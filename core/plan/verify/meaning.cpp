// V007: the program of a class, followed to its end, computes what the reference says.
#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/follower.h"
#include "plan/verify/verify.h"

namespace tenon {
namespace {

Status follow(const Program& program, Following& shared, bool suspecting, std::optional<InstrId>& suspected) {
  Follower one(program, shared);
  one.suspect(suspecting);
  TENON_CHECK(one.open());
  const Status status = one.run();
  suspected = one.suspected();
  return status.ok() ? one.finish() : status;
}

std::vector<AxisId> shared_axes(const Mesh& mesh, const std::vector<AxisId>& axes) {
  std::vector<AxisId> out;
  for (AxisId axis : axes) {
    if (axis < mesh.axes.size() && mesh.axes[axis].size > 1) out.push_back(axis);
  }
  return out;
}

// Consecutive tokens that an op looks at together lie on one rank: a rank has a part from the front of each
// sequence and one from the back.
Status check_token_groups(const Program& program, const Reference& reference) {
  const int64_t ranks = program.mesh.size(program.seq_axes);
  const Graph& graph = reference.joint->graph;
  const int64_t part = graph.value(reference.joint->inputs.at("tokens")).dims[1].size / (2 * ranks);
  for (const Op& op : graph.ops()) {
    if (ranks == 1 || *op.def->token_group == '\0' || part % attr_int(op.attrs, op.def->token_group) == 0)
      continue;
    return refuse("V007", fmt::format("'{}' looks at groups of tokens that ranks share", op.def->kind),
                  program.name + " program");
  }
  return {};
}

}  // namespace

// What is expected, and the forms and typed kernels that were met, which classes have in common.
struct Meaning::Shared {
  Shared(const Reference& reference, const std::vector<AxisId>& batch)
      : expected(expect(reference, !batch.empty())),
        following{reference, expected, Forms(reference.mesh),
                  KernelRules(following.forms, expected.real, reference.exact),
                  TransferRules(following.forms, batch, reference.exact)} {}

  const Expected expected;
  Following following;
};

Meaning::Meaning(const Reference& reference) : reference_(reference) {}
Meaning::~Meaning() = default;

Status Meaning::check(const Program& program) {
  if (program.mesh.axes != reference_.mesh.axes)
    return refuse("V007", "is for another mesh", program.name + " program");
  TENON_CHECK(check_token_groups(program, reference_));
  if (shared_ == nullptr)
    shared_ = std::make_unique<Shared>(reference_, shared_axes(program.mesh, program.batch_axes));
  std::optional<InstrId> suspected;
  Status status = follow(program, shared_->following, false, suspected);
  if (status.ok()) return status;
  Error error = std::move(status).error();
  (void)follow(program, shared_->following, true, suspected);  // once more, to say where it began
  if (suspected) {
    error.cause += fmt::format("; the first result that is not what its name says is that of {}",
                               where(program, *suspected));
  }
  return error;
}

Status check_meaning(const std::vector<Program>& programs, const Reference& reference) {
  TENON_CHECK(check_classes(interfaces_of(programs), reference));
  Meaning meaning(reference);
  for (const Program& program : programs) TENON_CHECK(meaning.check(program));
  return {};
}

}  // namespace tenon
