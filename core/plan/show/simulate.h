// Predicts when each instruction of each class of ranks runs: the longest path over the programs, with costs
// from a simple model of the machine. Pure; a prediction to compare plans by, not a promise.
#pragma once

#include "plan/program/program.h"

namespace tenon {

// Of one rank. A link's time for n bytes is latency + n / bandwidth.
struct Machine {
  double flops = 1e11;         // per second
  double memory_bytes = 1e10;  // per second
  double launch = 1e-6;        // seconds for each instruction
  double link_latency = 1e-5;  // seconds
  double link_bytes = 5e9;     // per second
};

struct ClassTime {
  double busy = 0;       // seconds of compute
  double waiting = 0;    // seconds in which the compute lane waits
  double transfers = 0;  // seconds of transfers, had each been waited for
};

// When an instruction runs: seconds since the step began.
struct SimulatedInstr {
  size_t program = 0;  // of those that were given
  InstrId id = 0;
  double start = 0, end = 0;
};

struct Simulation {
  double seconds = 0;  // of the step
  std::vector<ClassTime> classes;
  std::vector<SimulatedInstr> instrs;  // all, those of a lane in its order
  double idle_fraction() const;        // of all classes' compute lanes: the bubble and what is not hidden
};

// The programs must have passed check_symmetric().
Simulation simulate(const std::vector<Program>& programs, const Machine& machine);

// Share of the transfers' time that makes the compute lanes wait no longer than transfers that take no time
// would. `with`: what simulate() says of the same.
double hidden_fraction(const Simulation& with, const std::vector<Program>& programs, const Machine& machine);

// Seconds of a kernel, or of a transfer once all its members are at it.
double seconds_of(const Program& program, const Instr& instr, const Machine& machine);

}  // namespace tenon
