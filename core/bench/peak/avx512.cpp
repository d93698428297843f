#define TENON_PEAK_ISA "avx512"
#define TENON_PEAK_LOOPS kAvx512Peak
#define TENON_VECTOR_BYTES 64
#include "bench/peak/loop.h"
