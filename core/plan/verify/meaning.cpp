// V007: the programs of all classes, followed side by side, compute what the reference says.
#include <fmt/format.h>

#include <algorithm>

#include "plan/verify/follower.h"
#include "plan/verify/verify.h"

namespace tenon {
namespace {

// Of each parameter one class has the original, and all of its state.
Status check_owners(const std::vector<Program>& programs, const Reference& reference,
                    const Expected& expected) {
  std::map<std::string, int> owners, states;
  for (const Program& program : programs) {
    for (const TensorInfo& param : program.params) owners[param.name] += param.copy ? 0 : 1;
    for (const TensorInfo& state : program.states) ++states[state.name];
  }
  for (const auto& [name, param] : expected.params) {
    if (owners[name] != 1)
      return refuse("V007", fmt::format("parameter '{}' is owned by {} stages", name, owners[name]), name);
    if (param.slots == nullptr) continue;
    for (const StateSlot& slot : *param.slots) {
      const std::string state = state_name(name, reference.optimizer, slot);
      if (states[state] != 1)
        return refuse("V007", fmt::format("'{}' is kept {} times", state, states[state]), name);
    }
  }
  return {};
}

Status follow(const std::vector<Program>& programs, Following& shared, bool suspecting,
              std::vector<Follower>& followers) {
  for (const Program& program : programs) {
    followers.emplace_back(program, shared);
    followers.back().suspect(suspecting);
    TENON_CHECK(followers.back().open());
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (Follower& one : followers) {
      TENON_TRY(const bool ran, one.advance());
      moved |= ran;
    }
  }
  for (size_t i = 0; i < followers.size(); ++i) {
    if (!followers[i].done())
      return refuse("V007", "waits for what no other class sends", where(programs[i], followers[i].at()));
  }
  for (const Follower& one : followers) TENON_CHECK(one.finish());
  return {};
}

std::vector<AxisId> shared_axes(const Mesh& mesh, const std::vector<AxisId>& axes) {
  std::vector<AxisId> out;
  for (AxisId axis : axes) {
    if (axis < mesh.axes.size() && mesh.axes[axis].size > 1) out.push_back(axis);
  }
  return out;
}

}  // namespace

Status check_meaning(const std::vector<Program>& programs, const Reference& reference) {
  const Program& first = programs.front();
  if (first.mesh.axes != reference.mesh.axes)
    return refuse("V007", "is for another mesh", first.name + " program");
  const std::vector<AxisId> batch = shared_axes(first.mesh, first.batch_axes);
  const Expected expected = expect(reference, !batch.empty());
  TENON_CHECK(check_owners(programs, reference, expected));
  const auto run = [&](bool suspecting, std::optional<InstrId>& suspected, size_t& klass) {
    Following shared{reference,
                     expected,
                     programs.size(),
                     Forms(first.mesh),
                     KernelRules(shared.forms, expected.real, reference.exact),
                     TransferRules(shared.forms, batch, reference.exact)};
    std::vector<Follower> followers;
    followers.reserve(programs.size());
    Status status = follow(programs, shared, suspecting, followers);
    for (size_t i = followers.size(); i-- > 0;) {
      if (!followers[i].suspected()) continue;
      suspected = followers[i].suspected();
      klass = i;
    }
    return status;
  };
  std::optional<InstrId> suspected;
  size_t klass = 0;
  Status status = run(false, suspected, klass);
  if (status.ok()) return status;
  Error error = std::move(status).error();
  (void)run(true, suspected, klass);  // once more, to say where it began
  if (suspected) {
    error.cause += fmt::format("; the first result that is not what its name says is that of {}",
                               where(programs[klass], *suspected));
  }
  return error;
}

}  // namespace tenon
