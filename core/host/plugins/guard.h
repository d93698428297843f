// The one place where calls into plugins go through. What the core calls is not a plugin's own table but a
// guarded one, which stands for it slot by slot: it leaves a mark (base/trail.h) while the plugin runs, and
// refuses what no call may answer.
#pragma once

#include <string>

#include "base/result.h"
#include "base/trail.h"
#include "host/plugins/interfaces.h"
#include "tenon/plugin.h"

namespace tenon {

// The table that stands for `table` of plugin `id`, whose copy read_interface() has made. The same for the
// same table; lives for ever. What is not a function is as in the plugin's. A guarded slot answers
// TENON_E_INTERNAL where the plugin's answered
//   * a positive code: none but TENON_PENDING is one, and that only where a slot asks whether something is
//     done,
//   * success, and left NULL in its `T** out`.
// A table holds nothing of its caller, so there is a limited number of them: error A005 when a process uses
// more than kMaxGuarded tables of one interface.
Result<const void*> guarded(const InterfaceSpec& spec, const void* table, const TableCopy& copy,
                            const char* id);

// What a plugin does before it has tables; `who` is its id, or its file while that is all that is known.
enum class OwnCall : uint16_t { load, init, deinit, get_interface };
class OwnMark {
 public:
  OwnMark(std::string_view who, OwnCall call);

 private:
  trail::Mark mark_;
};

// "kernels/mine, enqueue". What a process left is not trusted: "" where it makes no sense.
std::string text_of_call(const trail::Found& found);

}  // namespace tenon
