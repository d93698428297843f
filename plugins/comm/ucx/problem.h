// What went wrong with an operation, as a value until it leaves the plugin.
#pragma once

#include <string>

#include "tenon/base.h"

namespace tenon::comm_ucx {

struct Problem {
  tenon_code code = TENON_OK;
  std::string text;
};

}  // namespace tenon::comm_ucx
