-- Naming plugins: t.plugin("kind/name", { option = value }). The options are checked by the core against the
-- plugin's own declarations; here only that they are plain data.
local core = require "tenon.core"
local s = require "tenon.schema"

local Plugin = s.class("a plugin", "t.plugin(\"kind/name\", { ... })")

local scalar = {
  name = "a number, a string, true, false or a list of strings",
  check = function(value, owner, key)
    local kind = type(value)
    if kind == "string" or kind == "boolean" then return value end
    if kind == "number" then return s.number().check(value) and value end
    if kind == "table" then return s.list(s.string, "'" .. tostring(key) .. "'").check(value, owner, key) end
  end,
}

local plugin = { Plugin = Plugin }

-- Options of a plugin, from a table of which `but` are not options.
function plugin.options(what, given, but)
  local fields = {}
  for key in pairs(given) do
    if type(key) == "string" and not (but and but[key]) then fields[key] = s.optional(scalar) end
  end
  local part = {}
  for key, value in pairs(given) do
    if not (but and but[key]) then part[key] = value end
  end
  return core.object(s.record(what, core.inherit(part, given), fields))
end

function plugin.check_id(id, kind)
  if type(id) ~= "string" or not id:find("^[%w_-]+/[%w_.-]+$") then
    core.fail("R003", "a plugin is named \"kind/name\", got " .. s.describe(id))
  end
  if kind and not id:find("^" .. kind .. "/") then
    core.fail("R003", "a plugin of kind '" .. kind .. "' is wanted, got '" .. id .. "'")
  end
  return id
end

function plugin.plugin(id, options)
  plugin.check_id(id)
  local made = { plugin = id, options = plugin.options(id, options or {}) }
  core.mark(made, nil, core.caller())
  return s.make(Plugin, made)
end

-- A field that takes t.plugin("<kind>/...") or just its name.
function plugin.of(kind)
  return {
    name = "a plugin of kind '" .. kind .. "' (t.plugin(\"" .. kind .. "/...\"))",
    check = function(value, owner, key)
      if type(value) == "string" and value:find("^" .. kind .. "/[%w_.-]+$") then
        local made = { plugin = value, options = core.object {} }
        core.mark(made, nil, core.place(owner, key))
        return s.make(Plugin, made)
      end
      if getmetatable(value) == Plugin and value.plugin:find("^" .. kind .. "/") then return value end
    end,
  }
end

-- A constructor t.strategy.data { ... } for one plugin.
function plugin.constructor(id)
  return function(options)
    local made = { plugin = id, options = plugin.options(id, options or {}) }
    core.mark(made, nil, core.caller())
    return s.make(Plugin, made)
  end
end

return core.strict(plugin, "tenon.plugin")
