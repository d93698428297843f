// Sound programs into which tests plant faults: finding, removing and repeating instructions, and which
// checks refuse what came of it.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "plan/compile/compile.h"
#include "plan/finish/memory.h"
#include "plan/finish/waits.h"
#include "plan/verify/verify.h"

namespace tenon::test {

// The first instruction for which `match` holds.
template <class Match>
InstrId find_instr(const Program& program, Match match) {
  for (InstrId id = 0; id < program.instrs.size(); ++id) {
    if (match(program.instrs[id])) return id;
  }
  ADD_FAILURE() << "no such instruction";
  return 0;
}

// Removes an instruction and keeps the waits of the others right.
inline void erase_instr(Program& program, InstrId id) {
  program.instrs.erase(program.instrs.begin() + id);
  for (Instr& instr : program.instrs) {
    std::erase(instr.waits, id);
    for (InstrId& wait : instr.waits) wait -= wait > id ? 1 : 0;
  }
}

// Puts an instruction in front of number `id`.
inline void insert_instr(Program& program, InstrId id, const Instr& added) {
  const Instr copy = added;
  for (Instr& instr : program.instrs) {
    for (InstrId& wait : instr.waits) wait += wait >= id ? 1 : 0;
  }
  program.instrs.insert(program.instrs.begin() + id, copy);
  program.instrs[id].waits.clear();
}

inline std::string named(InstrId id) { return "instruction " + std::to_string(id) + " ("; }

class Planted {
 protected:
  explicit Planted(const Compiled& sound) : programs_(sound.programs), reference_(sound.reference) {}

  // Waits and offsets as the compiler would have made them: only what the test planted is wrong.
  void replan() {
    for (Program& program : programs_) {
      schedule_waits(program);
      plan_memory(program);
    }
  }
  // Codes of the checks that refuse the programs, each check asked on its own.
  std::string refusing() const {
    std::string out;
    std::set<std::string> known;
    const auto ask = [&](const Status& status) {
      if (!status.ok() && known.insert(status.error().code).second)
        out += (out.empty() ? "" : " ") + status.error().code;
      return status.ok();
    };
    if (!ask(check_form(programs_))) return out;  // what all others take for granted
    if (ask(check_symmetric(programs_))) ask(check_every_rank(programs_));
    bool memory = true;
    for (const Program& program : programs_) memory &= ask(check_memory(program));
    if (!memory) return out;  // the others read bytes
    for (const Program& program : programs_) ask(check_windows(program));
    for (const Program& program : programs_) ask(check_races(program));
    for (const Program& program : programs_) ask(check_uses(program));
    if (out.empty()) ask(check_meaning(programs_, *reference_));  // which relies on the others
    return out;
  }
  // The checks with these codes refuse, and verify() with the first of them. `cause` and `place`: parts of
  // its message.
  void expect(const std::string& codes, const std::string& cause, const std::string& place) const {
    EXPECT_EQ(refusing(), codes);
    const auto report = verify(programs_, *reference_);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, codes.substr(0, codes.find(' ')));
    EXPECT_NE(report.error().cause.find(cause), std::string::npos) << report.error().text();
    EXPECT_NE(report.error().place.find(place), std::string::npos) << report.error().text();
  }

  std::vector<Program> programs_;
  const std::shared_ptr<const Reference> reference_;
};

}  // namespace tenon::test
