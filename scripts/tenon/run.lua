-- t.run { ... }: what a recipe returns. Fills the defaults and lays the parts out as the resolved recipe.
local core = require "tenon.core"
local s = require "tenon.schema"
local data = require "tenon.data"
local lr = require "tenon.lr"
local mesh = require "tenon.mesh"
local nn = require "tenon.nn"
local optim = require "tenon.optim"
local plugin = require "tenon.plugin"

local Run = s.class("a run", "t.run")
local every, positive = s.count(), s.count { min = 1 }

-- A plain table with fields of its own.
local function part(name, fields)
  return {
    name = "a table",
    check = function(value)
      if type(value) ~= "table" then return nil end
      return s.record(name, value, fields)
    end,
  }
end

local numerics_part = part("numerics", {
  mode = s.default(s.choice { "fast", "exact" }, "fast"), shards = s.default(positive, 8),
})

-- "fast", "exact" or { mode = "exact", shards = 8 }.
local numerics = {
  name = "\"fast\", \"exact\" or a table { mode, shards }",
  check = function(value)
    if value == "fast" or value == "exact" then return { mode = value, shards = 8 } end
    if type(value) == "string" then return nil, "R005" end
    return numerics_part.check(value)
  end,
}

-- "schedule/1f1b", or { rows = { "F0.0 B0.0", ... } }: the order of a pipeline's work by hand.
local schedule_plugin = plugin.of("schedule")
local schedule_rows = part("schedule", { rows = s.required(s.list(s.string, "rows")) })
local schedule = {
  name = schedule_plugin.name .. " or a table { rows }",
  check = function(value, owner, key)
    if type(value) == "table" and getmetatable(value) ~= plugin.Plugin then return schedule_rows.check(value) end
    return schedule_plugin.check(value, owner, key)
  end,
}

-- "kernels/cpu", or { "kernels/cpu", overrides = { gelu = "kernels/mine" } }: another plugin for some kinds of op.
local kernels_plugin = plugin.of("kernels")
local overrides = {
  name = "a table { op = plugin }",
  check = function(value)
    if type(value) ~= "table" or getmetatable(value) ~= nil then return nil end
    local kinds = {}
    for kind in pairs(value) do
      if type(kind) == "string" then kinds[kind] = s.required(kernels_plugin) end
    end
    return core.object(s.record("overrides", value, kinds))
  end,
}
local kernels = {
  name = kernels_plugin.name .. " or a table { plugin, overrides }",
  check = function(value, owner, key)
    if type(value) ~= "table" or getmetatable(value) ~= nil then return kernels_plugin.check(value, owner, key) end
    local given = s.record("kernels", value, { s.required(kernels_plugin), overrides = s.required(overrides) })
    local made = core.inherit({
      plugin = given[1].plugin, options = given[1].options, overrides = given.overrides,
    }, given)
    core.mark(made, "plugin", core.place(given, 1))
    return made
  end,
}

local fields = {
  name = s.optional(s.string),
  seed = s.default(s.count(), 1337),
  steps = s.required(positive),
  batch = s.required(positive),
  microbatches = s.default(positive, 1),
  context = s.optional(positive),
  precision = s.default(s.choice { "f32", "f64" }, "f32"),
  numerics = s.optional(numerics),
  model = s.required(s.object(nn.Model)),
  data = s.required(s.object(data.Data)),
  optim = s.required(s.object(optim.Optimizer)),
  mesh = s.optional(s.object(mesh.Mesh)),
  strategies = s.optional(s.list(plugin.of("parallel"), "strategies")),
  schedule = s.optional(schedule),
  kernels = s.optional(kernels),
  fusion = s.optional(s.boolean),
  comm = s.optional(plugin.of("comm")),
  eval = s.optional(part("eval", { every = s.required(every), batches = s.default(s.count(), 8) })),
  save = s.optional(part("save", { every = s.required(every), keep = s.default(positive, 2) })),
  log = s.optional(part("log", {
    every = s.default(every, 10), sinks = s.optional(s.list(plugin.of("sink"), "sinks")),
  })),
}

local function use(id) return { plugin = id, options = core.object {} } end

-- What holds where the recipe says nothing.
local defaults = {
  name = function() return core.stem() end,
  numerics = function() return { mode = "fast", shards = 8 } end,
  mesh = function() return { { "dp", 0 } } end,
  strategies = function() return { use "parallel/data" } end,
  kernels = function() return use "kernels/cpu" end,
  comm = function() return use "comm/ucx" end,
  eval = function(out) return { every = out.data.valid > 0 and out.steps or 0, batches = 8 } end,
  save = function(out) return { every = out.steps, keep = 2 } end,
  log = function() return { every = 10 } end,
}

-- Stages need an order of work; without any other they work as 1F1B has them.
local function has_pipeline(strategies)
  for _, strategy in ipairs(strategies) do
    if strategy.plugin == "parallel/pipeline" then return true end
  end
  return false
end

local function fill(out)
  for key, default in pairs(defaults) do
    if out[key] == nil then out[key] = default(out) end
  end
  if not out.schedule and has_pipeline(out.strategies) then out.schedule = use "schedule/1f1b" end
  out.log.sinks = out.log.sinks or { use "sink/jsonl" }
end

-- The number of tokens per sample: the recipe's, or as many as the model has positions for.
local function check_context(out, given)
  local limit = s.facts(out.model).context
  out.context = out.context or limit
  if not out.context then
    s.fail("R004", "t.run needs 'context', a whole number >= 1", "the model works with any number of tokens", given)
  end
  if limit and out.context > limit then
    s.fail("R005", string.format("'context' of t.run is %d, but the model has %d positions", out.context, limit), nil,
      given, "context")
  end
end

-- Routing groups are never cut.
local function check_groups(out, given)
  for _, group in ipairs(s.facts(out.model).groups) do
    if out.context % group ~= 0 then
      s.fail("R005", string.format("'context' of t.run is %d, which the model's routing 'group' = %d does not divide",
        out.context, group), "give the model another 'group'", given, "context")
    end
  end
end

local function run(given)
  local out = s.record("t.run", given, fields)
  fill(out)
  check_context(out, given)
  check_groups(out, given)
  out.tenon = 1
  out.optimizer, out.optim = out.optim, nil
  core.mark(out, "optimizer", core.place(given, "optim"))
  local about = s.facts(out.optimizer)
  out.lr = lr.over(about.lr, out.steps)
  core.mark(out, "lr", about.lr_place)
  return s.make(Run, out)
end

return { constructor = run, Run = Run }
