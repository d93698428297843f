// OpenMPI's all-reduce. usage: mpirun ... comm_bench_mpi <name> <sizes> <seconds per size>
#include <mpi.h>

#include <cstdlib>

#include "measure.h"

namespace {

class Mpi : public tenon::bench::Contestant {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
  }
  float* buffer(uint64_t bytes) override {
    buffer_.assign(bytes / sizeof(float), 0.0f);
    return buffer_.data();
  }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void all_reduce(uint64_t bytes) override {
    MPI_Allreduce(MPI_IN_PLACE, buffer_.data(), static_cast<int>(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  double max(double value) override {
    double out = 0;
    MPI_Allreduce(&value, &out, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return out;
  }

 private:
  std::vector<float> buffer_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) return 2;
  {
    Mpi mpi;
    tenon::bench::run(mpi, argv[1], tenon::bench::parse_sizes(argv[2]), std::atof(argv[3]));
  }
  MPI_Finalize();
  return 0;
}
