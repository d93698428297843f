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
  std::vector<Interface> classes;
  for (const Program& program : programs) classes.push_back(interface_of(program));
  TENON_CHECK(check_classes(classes, reference));
  Meaning meaning(reference);
  for (const Program& program : programs) TENON_CHECK(meaning.check(program));
  return {};
}

}  // namespace tenon
