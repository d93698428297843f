// The inner loops compiled for any machine of this architecture.
#define TENON_ISA isa_baseline
#define TENON_VECTOR_BYTES 16
#include "loop_table.h"

namespace tenon::kernels::cpu {

constinit const LoopTable kBaseline = {"baseline", isa_baseline::make_loops<float>(),
                                       isa_baseline::make_loops<double>()};

}  // namespace tenon::kernels::cpu
