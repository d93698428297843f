#include "cli/exit_code.h"

namespace tenon::cli {

// 0 done, 1 the run failed, 2 recipe or usage, 3 environment (plugins, files), 4 a worker died or a peer
// was lost, 5 checkpoint, 75 stopped and saved.
int exit_code_of(const Error& error) {
  switch (error.code.empty() ? ' ' : error.code[0]) {
    case 'R':
    case 'P':
    case 'D':
    case 'S':
    case 'G': return kExitRecipe;
    case 'A':
    case 'E': return kExitEnvironment;
    case 'W': return 4;
    case 'C': return 5;
    default: return 1;
  }
}

}  // namespace tenon::cli
