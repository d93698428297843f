// One rank's device: kernels, communication domain, optimizer states, and the memory that all programs of
// the run share.
#pragma once

#include <array>
#include <atomic>
#include <map>

#include "plan/program/program.h"
#include "run/declarations.h"
#include "run/handle.h"
#include "run/plugin_set.h"

namespace tenon {

constexpr unsigned char kNoNumber = 0xFF;  // all bytes of it are NaN, as any floating-point type

struct RankId {
  int64_t rank = 0;
  int64_t world = 1;
};

// The optimizer with the options of one group.
Result<Handle<tenon_optimizer_state>> open_optimizer(const OptimizerUse& use,
                                                     const OptimizerUse::Group& group);

// Who runs the kernels of a kind.
struct KernelRunner {
  const Plugged<tenon_kernels>* plugin = nullptr;
  tenon_device* device = nullptr;
};

class RankDevice {
 public:
  // `rendezvous` may be NULL when world is 1; it is borrowed for the life of the device. Collective.
  static Result<std::unique_ptr<RankDevice>> open(const PluginSet& plugins, RankId id, const Mesh& mesh,
                                                  const tenon_rendezvous* rendezvous, int64_t timeout_ns);
  // Allocates the spaces, each `bytes`; contents zero, of the arena NaN, see spoil_arena(). Collective when
  // world > 1.
  Status allocate(const std::array<uint64_t, kNumSpaces>& bytes);
  // Makes NaN of the first `bytes` of the arena, in front of a step: what a plugin should write in it and
  // does not is seen in its loss or norm.
  void spoil_arena(uint64_t bytes);

  char* space(Space space) const { return base_[static_cast<size_t>(space)]; }
  uint64_t bytes(Space space) const { return bytes_[static_cast<size_t>(space)]; }
  // Memory of the device that peers cannot reach, at least kAlignment bytes, zeroed. The device outlives it.
  Result<Handle<void>> memory(uint64_t bytes);
  // Address of an operand of `program`.
  char* address(const Program& program, const Operand& operand) const;

  const PluginSet& plugins() const { return plugins_; }
  RankId id() const { return id_; }
  const Mesh& mesh() const { return mesh_; }
  KernelRunner runner_of(std::string_view kind) const;
  tenon_optimizer_state* optimizer(size_t group) const { return optimizers_[group].get(); }
  const OptimizerDeclaration& optimizer_declaration(size_t group) const { return declarations_[group]; }
  // The communication group of this rank over mesh axes; opened at first use. Collective.
  Result<tenon_comm_group*> group(const std::vector<AxisId>& axes);
  tenon_comm_domain* domain() const { return domain_.get(); }
  int64_t timeout_ns() const { return timeout_ns_; }
  // Ends every wait of this rank's communication, and what executes here between two instructions, for good.
  // [thread-safe]
  void abort();
  bool is_aborted() const { return aborted_.load(std::memory_order_relaxed); }

 private:
  RankDevice(const PluginSet& plugins, RankId id, Mesh mesh)
      : plugins_(plugins), id_(id), mesh_(std::move(mesh)) {}
  Status open_kernels();
  Status open_optimizers();

  const PluginSet& plugins_;
  RankId id_;
  Mesh mesh_;
  int64_t timeout_ns_ = -1;
  std::vector<Handle<tenon_device>> kernels_;  // as KernelPlugins::plugins
  std::vector<Handle<tenon_optimizer_state>> optimizers_;
  std::vector<OptimizerDeclaration> declarations_;  // by group
  Handle<tenon_comm_domain> domain_;                // NULL when world is 1
  std::map<std::vector<AxisId>, Handle<tenon_comm_group>> groups_;
  std::vector<Handle<void>> memory_;
  std::atomic<bool> aborted_{false};
  std::array<char*, kNumSpaces> base_{};
  std::array<uint64_t, kNumSpaces> bytes_{};
};

}  // namespace tenon
