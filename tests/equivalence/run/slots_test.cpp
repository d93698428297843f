// States of an optimizer whose groups name a slot alike, and mean different dtypes.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>

#include "close.hpp"
#include "recipes.hpp"

namespace tenon::test {
namespace {

// One slot "m": f64 where weight_decay is 0, f32 elsewhere. Counts steps in it, and leaves parameters alone.
struct Group {
  tenon_slot_decl slot;
  const tenon_slot_decl* slots[1] = {&slot};
};

Group* group_of(tenon_optimizer_state* state) { return reinterpret_cast<Group*>(state); }

tenon_code open(const tenon_optimizer_config* config, tenon_optimizer_state** out, tenon_error*) {
  const std::span options(config->options, config->num_options);
  const bool plain = std::ranges::any_of(options, [](const tenon_option& option) {
    return std::string_view(option.key) == "weight_decay" && option.f == 0;
  });
  const uint32_t dtype = plain ? TENON_F64 : TENON_F32;
  *out = reinterpret_cast<tenon_optimizer_state*>(new Group{{sizeof(tenon_slot_decl), dtype, "m"}});
  return TENON_OK;
}

void close(tenon_optimizer_state* state) { delete group_of(state); }

tenon_code describe(const tenon_optimizer_state* state, tenon_optimizer_info* info, tenon_error*) {
  const tenon_optimizer_info mine = {sizeof mine, 1, reinterpret_cast<const Group*>(state)->slots,
                                     TENON_GRANULE_ELEMENT, 0};
  tenon_fill(info, &mine);
  return TENON_OK;
}

template <class T>
void count_step(void* slot, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) ++static_cast<T*>(slot)[i];
}

tenon_code step(tenon_optimizer_state* state, const tenon_stream*, const tenon_update* const* updates,
                uint32_t count, const tenon_step_scalars*, tenon_error*) {
  for (uint32_t u = 0; u < count; ++u) {
    const auto count_in = group_of(state)->slot.dtype == TENON_F64 ? count_step<double> : count_step<float>;
    count_in(updates[u]->slots[0], updates[u]->count);
  }
  return TENON_OK;
}

constexpr tenon_optimizer kTable{sizeof(tenon_optimizer), kDLCPU, open, close, describe, nullptr, step};

Json recipe() {
  const TinyModel tiny;
  return tiny_recipe(gpt2_model(tiny), corpus_file(), tiny.context);
}

void count_steps(PluginSet& plugins) { plugins.optimizer.table = &kTable; }

TEST(Slots, are_found_by_name_and_dtype) {
  for (int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    Json document = recipe();
    if (ranks > 1)
      document["strategies"].push_back({{"plugin", "parallel/zero"}, {"options", {{"stage", 2}}}});
    const RunRecord record = must_run(document, {.ranks = ranks, .steps = 2, .change_plugins = count_steps});
    std::map<Dtype, int> found;
    for (const auto& [name, bytes] : record.tensors) {
      if (!name.ends_with(".m")) continue;
      const Dtype dtype = record.dtypes.at(name);
      ++found[dtype];
      const std::vector<double> values = as_doubles(bytes, dtype);
      EXPECT_EQ(values, std::vector<double>(values.size(), 2.0)) << name;
    }
    EXPECT_GT(found[Dtype::f32], 0);
    EXPECT_GT(found[Dtype::f64], 0);
  }
}

// How often each element of a parameter was updated, by what updates say of themselves: name, shape, block,
// range.
struct Updated {
  std::mutex mutex;
  std::map<std::string, std::vector<int>> times;

  static Updated& self() {
    static Updated all;
    return all;
  }
  void note(const tenon_update& u) {
    int64_t whole = 1, block = 1;
    for (uint32_t d = 0; d < u.ndim; ++d) whole *= u.dims[d], block *= u.sizes[d];
    ASSERT_LE(u.first + u.count, static_cast<uint64_t>(block)) << u.name;
    const std::lock_guard lock(mutex);
    std::vector<int>& of_param = times[u.name];
    of_param.resize(static_cast<size_t>(whole));
    for (uint64_t k = u.first; k < u.first + u.count; ++k) {
      int64_t rest = static_cast<int64_t>(k), at = 0, stride = 1;
      for (uint32_t d = u.ndim; d-- > 0; stride *= u.dims[d]) {
        at += (u.starts[d] + rest % u.sizes[d]) * stride;
        rest /= u.sizes[d];
      }
      ++of_param.at(static_cast<size_t>(at));
    }
  }
};

tenon_code note_step(tenon_optimizer_state* state, const tenon_stream* stream,
                     const tenon_update* const* updates, uint32_t count, const tenon_step_scalars* scalars,
                     tenon_error* error) {
  for (uint32_t u = 0; u < count; ++u) Updated::self().note(*updates[u]);
  return step(state, stream, updates, count, scalars, error);
}

// Cut over dp by ZeRO and over tp by dims: all elements of a parameter are updated equally often, by one rank
// of each that holds them whole.
TEST(Updates, say_which_elements_of_which_parameter_they_are) {
  Json document = recipe();
  document["mesh"] = Json::array({Json::array({"dp", 2}), Json::array({"tp", 2})});
  document["strategies"].push_back({{"plugin", "parallel/tensor"}, {"options", Json::object()}});
  document["strategies"].push_back({{"plugin", "parallel/zero"}, {"options", {{"stage", 2}}}});
  const RunRecord record =
      must_run(document, {.ranks = 4, .steps = 1, .change_plugins = [](PluginSet& plugins) {
                            static tenon_optimizer table = kTable;
                            table.step = note_step;
                            plugins.optimizer.table = &table;
                          }});
  size_t cut = 0;
  for (const auto& [name, times] : Updated::self().times) {
    EXPECT_TRUE(record.tensors.contains(name)) << name;
    EXPECT_EQ(times, std::vector<int>(times.size(), times[0])) << name;
    EXPECT_TRUE(times[0] == 1 || times[0] == 2) << name << ": " << times[0];
    cut += times[0] == 1 ? 1 : 0;
  }
  EXPECT_GT(cut, 0u) << "over tp";
  EXPECT_LT(cut, Updated::self().times.size());
}

// LAMB reads norms over whole parameters: on any mesh the same as on one rank.
TEST(Statistics, are_over_whole_parameters_on_any_mesh) {
  struct Case {
    const char* name;
    Json mesh;
    std::vector<std::pair<const char*, Json>> strategies;
  };
  const auto axes = [](std::vector<std::pair<const char*, int>> sizes) {
    Json out = Json::array();
    for (const auto& [axis, size] : sizes) out.push_back({axis, size});
    return out;
  };
  const std::vector<Case> cases = {
      {"zero1", axes({{"dp", 2}}), {{"zero", {{"stage", 1}}}}},
      {"zero2", axes({{"dp", 4}}), {{"zero", {{"stage", 2}}}}},
      {"zero3", axes({{"dp", 2}}), {{"zero", {{"stage", 3}}}}},
      {"tp2", axes({{"dp", 1}, {"tp", 2}}), {{"tensor", Json::object()}}},
      {"tp2 zero3", axes({{"tp", 2}, {"dp", 2}}), {{"tensor", Json::object()}, {"zero", {{"stage", 3}}}}},
      {"tied over stages",
       axes({{"pp", 2}, {"dp", 2}}),
       {{"pipeline", Json::object()}, {"zero", {{"stage", 1}}}}},
  };
  Json document = recipe();
  document["precision"] = "f64";
  document["microbatches"] = 2;
  document["optimizer"]["plugin"] = "optimizer/lamb";
  document["optimizer"]["options"] = {{"weight_decay", 0.1}, {"eps", 1e-3}};
  document["optimizer"]["groups"] = Json::array(
      {{{"match", Json::array({"*.weight"})}, {"options", {{"weight_decay", 0.0}, {"eps", 1e-3}}}}});
  document["optimizer"]["clip"] = 0.1;
  const RunRecord alone = must_run(document, {.ranks = 1, .steps = 3});
  const auto furthest = [&](const RunRecord& record) {
    double most = 0;
    for (const auto& [name, bytes] : alone.tensors) {
      if (!record.tensors.contains(name)) continue;  // another optimizer's state
      const auto wanted = as_doubles(bytes, Dtype::f64),
                 found = as_doubles(record.tensors.at(name), Dtype::f64);
      EXPECT_EQ(wanted.size(), found.size()) << name;
      for (size_t i = 0; i < wanted.size(); ++i) most = std::max(most, std::abs(wanted[i] - found[i]));
    }
    return most;
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Json cut = document;
    cut["mesh"] = c.mesh;
    for (const auto& [name, options] : c.strategies)
      cut["strategies"].push_back({{"plugin", std::string("parallel/") + name}, {"options", options}});
    if (c.mesh[0][0] == "pp") cut["schedule"] = {{"plugin", "schedule/1f1b"}, {"options", Json::object()}};
    int ranks = 1;
    for (const Json& axis : c.mesh) ranks *= axis[1].get<int>();
    const RunRecord record = must_run(cut, {.ranks = ranks, .steps = 3});
    EXPECT_TRUE(record.disagreements.empty()) << record.disagreements.front();
    EXPECT_LT(furthest(record), 1e-12);
  }
  // They matter: without the ratio the same direction leads elsewhere.
  Json adam = document;
  adam["optimizer"]["plugin"] = "optimizer/adamw";
  EXPECT_GT(furthest(must_run(adam, {.ranks = 1, .steps = 3})), 1e-6);
}

TEST(Slots, that_a_program_lacks_are_told) {
  PluginRegistry registry(test_registry());
  const Recipe read = read_recipe(recipe()).value();
  PluginSet plugins = load_plugins(registry, read).value();
  auto programs = std::make_shared<Programs>(*compile_programs(read, plugins, 1, true).value());
  for (Instr& instr : programs->train->programs[0].instrs) {
    if (instr.kind == "update") instr.out.back().name = "other";
  }
  const auto record = run_virtual(recipe(), {.programs = programs});
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.error().code, "P038");
  EXPECT_TRUE(record.error().cause.starts_with("no state for slot 'exp_avg_sq' of ")) << record.error().cause;
}

}  // namespace
}  // namespace tenon::test
