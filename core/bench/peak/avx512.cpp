#define TENON_PEAK_ISA "avx512"
#define TENON_PEAK_LOOP kAvx512Peak
#define TENON_VECTOR_BYTES 64
#include "bench/peak/loop.h"
