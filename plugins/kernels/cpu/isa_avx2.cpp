// The inner loops compiled for avx2 (see CMakeLists.txt).
#define TENON_ISA isa_avx2
#define TENON_VECTOR_BYTES 32
#include "loop_table.h"

namespace tenon::kernels::cpu {

extern const LoopTable kAvx2;
constinit const LoopTable kAvx2 = {"avx2", isa_avx2::make_loops<float>(), isa_avx2::make_loops<double>()};

}  // namespace tenon::kernels::cpu
