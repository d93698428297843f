#define TENON_PEAK_ISA "baseline"
#define TENON_PEAK_LOOPS kBaselinePeak
#define TENON_VECTOR_BYTES 16
#include "bench/peak/loop.h"
