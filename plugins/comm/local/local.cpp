// comm/local: N virtual ranks as threads of one process. Operations are done in the members' memory,
// directly.
#include <cstring>

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

tenon_code init(const tenon_host*, tenon_error*) { return TENON_OK; }
void deinit() {}
const void* get_interface(const char* id) { return std::strcmp(id, TENON_COMM) == 0 ? &kTable : nullptr; }

}  // namespace

extern "C" TENON_EXPORT const tenon_plugin tenon_plugin_v0 = {
    sizeof(tenon_plugin),
    TENON_ABI_MAJOR,
    TENON_ABI_MINOR,
    TENON_ABI_MINOR,
    "comm/local",
    "0.1.0",
    "Virtual ranks: N ranks as threads of one process",
    nullptr,
    0,
    init,
    deinit,
    get_interface};
