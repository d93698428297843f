// comm/local: N virtual ranks as threads of one process. Operations are done in the members' memory,
// directly.

#include "domain.h"
#include "tenon/comm.h"
#include "tenon_sdk/comm/table.hpp"

namespace {

using namespace tenon::comm_local;

Domain* open_domain(const tenon_comm_config& config) {
  tenon::comm::check_config(config, "comm/local");
  return new Domain(config, join_hub(config));
}

constexpr tenon_comm kTable = tenon::comm::Table<Domain, GroupHandle, Plan, open_domain>::make(
    TENON_COMM_TREE_ORDER | TENON_COMM_IN_PROCESS);

}  // namespace

extern "C" const tenon_plugin tenon_plugin_v0 = tenon::sdk::plugin_with<TENON_COMM, kTable>(
    "comm/local", "0.1.0", "Virtual ranks: N ranks as threads of one process");
