-- Optimizers: options of the plugin, the learning rate, clipping by the global norm, groups of parameters
-- by name pattern.
local core = require "tenon.core"
local s = require "tenon.schema"
local lr = require "tenon.lr"
local plugin = require "tenon.plugin"

local Optimizer = s.class("an optimizer", "t.optim.adamw, t.optim.lamb, t.optim.sgd or t.optim.plugin")
local number = s.optional(s.number())

-- Names and types, for messages with a place; defaults and ranges are the plugins' own.
local options_of = {
  adamw = { beta1 = number, beta2 = number, eps = number, weight_decay = number },
  lamb = { beta1 = number, beta2 = number, eps = number, weight_decay = number },
  sgd = { momentum = number, nesterov = s.optional(s.boolean), weight_decay = number },
}

-- Not options of the plugin.
local common = { lr = true, clip = true, groups = true }
local in_group = { match = true }

local function pick(record, but)
  local out = core.inherit({}, record)
  for key, value in pairs(record) do
    if not but[key] then out[key] = value end
  end
  return core.object(out)
end

-- `options`: fields of the plugin's options, nil when only the core can check them.
local function read_options(what, given, but, options, more)
  if type(given) ~= "table" then core.fail("R003", what .. " wants a table of options, got " .. s.describe(given)) end
  if not options then
    local fields, rest = {}, plugin.options(what, given, but)
    for key, field in pairs(more) do fields[key] = field end
    local part = core.inherit({}, given)
    for key in pairs(but) do part[key] = given[key] end
    return s.record(what, part, fields), rest
  end
  local fields = {}
  for key, field in pairs(options) do fields[key] = field end
  for key, field in pairs(more) do fields[key] = field end
  local record = s.record(what, given, fields)
  return record, pick(record, but)
end

local function read_groups(what, options, groups)
  local out = core.inherit({}, groups)
  for i, group in ipairs(groups) do
    local record, rest = read_options("a group of " .. what, group, in_group, options,
      { match = s.required(s.list(s.string, "match")) })
    out[i] = core.inherit({ match = record.match, options = rest }, record)
  end
  return out
end

local any_table = {
  name = "a table",
  check = function(value) return type(value) == "table" and getmetatable(value) == nil and value or nil end,
}

local function make(what, id, options, given)
  local record, rest = read_options(what, given, common, options, {
    lr = s.required(lr.type),
    clip = s.default(s.number { min = 0 }, 0.0),
    groups = s.default(s.list(any_table, "groups"), {}),
  })
  local out = core.inherit({ plugin = id, options = rest, clip = record.clip }, record)
  out.groups = read_groups(what, options, record.groups)
  return s.make(Optimizer, out, { lr = record.lr, lr_place = core.place(given, "lr") })
end

local optim = {}
for name, options in pairs(options_of) do
  optim[name] = function(given) return make(name, "optimizer/" .. name, options, given) end
end

-- Any optimizer plugin: t.optim.plugin("optimizer/x", { lr = ..., option = ... }).
function optim.plugin(id, given)
  return make(plugin.check_id(id, "optimizer"), id, nil, given)
end

return { constructors = core.strict(optim, "t.optim"), Optimizer = Optimizer }
