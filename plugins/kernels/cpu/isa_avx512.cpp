// The inner loops compiled for avx512 (see CMakeLists.txt).
#define TENON_ISA isa_avx512
#define TENON_VECTOR_BYTES 64
#include "loop_table.h"

namespace tenon::kernels::cpu {

extern const LoopTable kAvx512;
constinit const LoopTable kAvx512 = {"avx512", isa_avx512::make_loops<float>(),
                                     isa_avx512::make_loops<double>()};

}  // namespace tenon::kernels::cpu
