#define TENON_PEAK_ISA "avx2"
#define TENON_PEAK_LOOPS kAvx2Peak
#define TENON_VECTOR_BYTES 32
#include "bench/peak/loop.h"
