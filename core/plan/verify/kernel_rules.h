// What a kernel makes of what it reads: forms by the sharding rule of its row in the op table, fingerprints
// by hash. The reference and the programs are judged by the same rules.
#pragma once

#include "graph/ops.h"
#include "plan/program/program.h"
#include "plan/verify/content.h"

namespace tenon {

// The fingerprint of output k of an op. `free`: the sizes of its dims that no input has.
Print print_of(const OpDef& def, const Attrs& attrs, std::span<const Print> in, size_t k,
               std::span<const int64_t> free, bool ordered);
// The factors of output k that no input has: their sizes are `free`.
std::vector<size_t> free_dims(const Rule& rule, size_t k);

struct KernelCall {
  std::string_view kind;
  const Attrs& attrs;
  const std::vector<AxisId>& axes;  // that its attribute `start` counts along
  int64_t offset_step = 0;
  std::vector<Content> in;
  std::vector<const Operand*> out;  // what it is told to write; null: inside of a fused kernel
};

class KernelRules {
 public:
  // `real`: what "float" means in the op table. `ordered`: see plus().
  KernelRules(Forms& forms, Dtype real, bool ordered) : forms_(forms), real_(real), ordered_(ordered) {}

  // Errors (V007) say what does not fit; they have no place.
  Result<std::vector<Content>> run(const KernelCall& call);

 private:
  struct Typed {
    std::string refused;  // why; empty: it is not
    const OpDef* def = nullptr;
    std::vector<FormId> out;
    std::vector<std::vector<int64_t>> free;
  };
  const Typed& type(const KernelCall& call);
  Status fill(const KernelCall& call, Typed& typed) const;
  Result<const OpDef*> find_def(const KernelCall& call) const;
  Status check_inputs(const KernelCall& call, const OpDef& def, const Rule& rule, const Typing& typing) const;
  Status check_offset(const KernelCall& call, const OpDef& def, const Rule& rule, const Typing& typing) const;
  Status size_outputs(const KernelCall& call, const OpDef& def, const Rule& rule, const Typing& typing,
                      Typed& typed) const;
  Result<std::vector<Content>> run_parts(const KernelCall& call, const OpDef& fused);
  Dtype dtype_of(OperandDef::Type type, const KernelCall& call) const;

  Forms& forms_;
  const Dtype real_;
  const bool ordered_;
  std::unordered_map<std::string, Typed> known_;
};

}  // namespace tenon
