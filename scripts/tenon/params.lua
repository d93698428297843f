-- Declared parameters: t.params { lr = t.number { 1e-3 } } gives their values, after the overrides of the
-- command line (key=value) have been applied.
local core = require "tenon.core"
local s = require "tenon.schema"

local Parameter = s.class("a parameter", "t.number, t.count, t.integer, t.boolean, t.string, t.file or t.choice")

local units = {
  K = 10 ^ 3, M = 10 ^ 6, G = 10 ^ 9, B = 10 ^ 9, T = 10 ^ 12,
  Ki = 2 ^ 10, Mi = 2 ^ 20, Gi = 2 ^ 30, Ti = 2 ^ 40,
}

local function parse_number(text)
  if not text:find("^[+-]?%.?%d[%d%.]*[eE]?[+-]?%d*$") then return nil end
  return tonumber(text)
end

-- "512Ki", "10M", "1.5B", "4096".
local function parse_count(text)
  local digits, unit = text:match("^([+-]?[%d%.]+[eE]?[+-]?%d*)(%a*)$")
  local number = digits and tonumber(digits)
  local factor = unit == "" and 1 or rawget(units, unit or "")
  if not number or not factor then return nil end
  return math.tointeger(number * factor)
end

local function parse_boolean(text)
  if text == "true" then return true end
  if text == "false" then return false end
end

-- Kinds: how an override is read, and the type that its value must have.
local kinds = {
  number = { parse = parse_number, type = s.number, example = "3e-4" },
  count = { parse = parse_count, type = function(limits) return s.count { min = limits.min or 0, max = limits.max } end,
            example = "4096, 64Ki or 10M" },
  integer = { parse = parse_count, type = s.count, example = "4096, 64Ki or 10M" },
  boolean = { parse = parse_boolean, type = function() return s.boolean end, example = "true or false" },
  string = { parse = function(text) return text end, type = function() return s.string end },
  file = { parse = core.from_here, type = function() return s.string end },
  choice = { parse = function(text) return text end, type = function(limits) return s.choice(limits.of) end },
}

-- A default may be written as a count with a unit.
local function default_type(kind, value_type)
  if kind ~= "count" and kind ~= "integer" then return value_type end
  return {
    name = value_type.name,
    check = function(value)
      if type(value) == "string" then value = parse_count(value) end
      return value_type.check(value)
    end,
  }
end

local extra = {
  number = { min = s.optional(s.number()), max = s.optional(s.number()) },
  count = { min = s.optional(s.count()), max = s.optional(s.count()) },
  integer = { min = s.optional(s.count {}), max = s.optional(s.count {}) },
  boolean = {},
  string = {},
  file = {},
  choice = { of = s.required(s.list(s.string, "of")) },
}

-- The constructor t.number { 6e-4, min = 0, doc = "..." } and its like.
local function declare(kind)
  return function(given)
    local what = "t." .. kind
    if type(given) ~= "table" then given = { given } end
    local fields = { doc = s.default(s.string, "") }
    for name, field in pairs(extra[kind]) do fields[name] = field end
    local limits = {}
    for name in pairs(extra[kind]) do limits[name] = given[name] end
    if kind == "choice" then s.record(what, { of = given.of }, extra.choice) end
    local value_type = kinds[kind].type(limits)
    fields[1] = s.optional(default_type(kind, value_type))
    local out = s.record(what, given, fields)
    return s.make(Parameter, out, { kind = kind, type = value_type })
  end
end

local declared  -- name -> description; nil until t.params is called

local function find_override(name)
  local found
  for _, pair in ipairs(core.overrides()) do
    if pair[1] == name then found = pair[2] end
  end
  return found
end

local function overridden(name, text, about, place)
  local kind = kinds[about.kind]
  local value = kind.parse(text)
  if value ~= nil then value = about.type.check(value) end
  if value == nil then
    core.fail("R013", "'" .. name .. "' wants " .. about.type.name .. ", got '" .. text .. "' on the command line",
      rawget(kind, "example") and "for example: " .. kind.example, place)
  end
  return value
end

local function check_overrides(given)
  local names = {}
  for name in pairs(given) do names[#names + 1] = name end
  for _, pair in ipairs(core.overrides()) do
    if given[pair[1]] == nil then
      core.fail("R013", "unknown parameter '" .. pair[1] .. "' on the command line",
        s.did_you_mean(pair[1], names, "parameters:"), core.place(given))
    end
  end
end

local function describe(name, declaration, about, value)
  return core.object {
    name = name, kind = about.kind, default = declaration[1], value = value, doc = declaration.doc,
    min = declaration.min, max = declaration.max, choices = declaration.of,
  }
end

local params = {}

function params.params(given)
  if declared then core.fail("R012", "t.params is called twice", "declare all parameters in one table") end
  local fields = {}
  if type(given) == "table" then
    for name in pairs(given) do
      if type(name) == "string" then fields[name] = s.required(s.object(Parameter)) end
    end
  end
  local checked = s.record("t.params", given, fields)
  check_overrides(given)
  declared = {}
  local values = {}
  for name, declaration in pairs(checked) do
    local about, text = s.facts(declaration), find_override(name)
    local value = declaration[1]
    if text then value = overridden(name, text, about, core.place(given, name)) end
    if value == nil then
      s.fail("R013", "parameter '" .. name .. "' has no default", "give it on the command line: " .. name .. "=...",
        given, name)
    end
    values[name] = value
    declared[#declared + 1] = describe(name, declaration, about, value)
  end
  return core.strict(values, "the parameters")
end

-- For the end of the evaluation: overrides need declared parameters.
function params.declared()
  local first = core.overrides()[1]
  if first and not declared then
    core.fail("R013", "unknown parameter '" .. first[1] .. "' on the command line",
      "this recipe declares no parameters (t.params)", core.last_return())
  end
  return declared or {}
end

for kind in pairs(kinds) do params[kind] = declare(kind) end

return params
