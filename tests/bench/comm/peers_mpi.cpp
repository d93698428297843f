// OpenMPI's all-reduce of f32 in place, measured as core/bench/comm.cpp measures a plugin's: every rank
// writes its whole buffer before each call, the time of a call is that of the slowest rank, the result the
// median over calls. usage: mpirun ... comm_bench_mpi <name> <sizes, as 1024,4096> <seconds per size>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// As many calls as take about `seconds`, at least 7.
int calls_for(uint64_t bytes, double seconds) {
  const double per_call = 2e-6 + static_cast<double>(bytes) / 5e8;  // writing included
  return static_cast<int>(std::clamp(seconds / per_call, 7.0, 2000.0));
}

double slowest_of(double mine) {
  double out = 0;
  MPI_Allreduce(&mine, &out, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return out;
}

// The median seconds of a call. Ends all ranks on a wrong result.
double measure(uint64_t bytes, int calls) {
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  std::vector<float> data(bytes / sizeof(float));
  const size_t count = data.size();
  std::vector<double> times;
  for (int i = -3; i < calls; ++i) {  // the first ones warm up
    std::fill(data.begin(), data.end(), static_cast<float>(i + 10 + rank));
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now();
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double slowest = slowest_of(now() - start);
    const float expected = static_cast<float>(world * (i + 10) + world * (world - 1) / 2);
    for (const size_t k : {size_t{0}, count / 3, count / 2, count - 1}) {
      if (data[k] != expected) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (i >= 0) times.push_back(slowest);
  }
  return median(times);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) return 2;
  int rank = 0, world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const double seconds = std::atof(argv[3]);
  for (const char* at = argv[2]; *at != 0; at += *at == ',') {
    char* end = nullptr;
    const uint64_t bytes = std::strtoull(at, &end, 10);
    at = end;
    const double taken = measure(bytes, calls_for(bytes, seconds));
    if (rank == 0)
      std::printf("%s %d %llu %.9f\n", argv[1], world, static_cast<unsigned long long>(bytes), taken);
  }
  MPI_Finalize();
  return 0;
}
