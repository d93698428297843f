-- Strict records: every table that a user writes is checked against its fields here, and every message about
-- one is made here.
--
-- A type is { name = "a number", check = function(value, owner, key) ... end }: check returns the value to
-- use, or nil and (optionally) an error code; it may itself fail at the place of owner[key].
local core = require "tenon.core"

local schema = {}

-- ---- messages ----

local function quoted(text)
  return #text > 40 and '"' .. text:sub(1, 37) .. '..."' or '"' .. text .. '"'
end

-- What a value is: the string "abc", 7, a list, an optimizer.
function schema.describe(value)
  local kind = type(value)
  if kind == "string" then return "the string " .. quoted(value) end
  if kind == "number" or kind == "boolean" then return tostring(value) end
  if kind == "nil" then return "nothing" end
  if kind == "table" then
    local class = getmetatable(value)
    return class and class.is or "a table"
  end
  return "a " .. kind
end

-- `lr of adamw`, `entry 2 of match`.
local function label(key, what)
  if math.type(key) == "integer" then return "entry " .. key .. " of " .. what end
  return "'" .. key .. "' of " .. what
end

-- Fails at owner[key].
function schema.fail(code, message, hint, owner, key)
  core.fail(code, message, hint, type(owner) == "table" and core.place(owner, key) or nil)
end

function schema.did_you_mean(name, candidates, otherwise)
  local found = core.closest(name, candidates)
  if found then return "did you mean '" .. found .. "'?" end
  if #candidates == 0 then return nil end
  return (otherwise or "known:") .. " " .. table.concat(candidates, ", ")
end

-- ---- types ----

local function in_range(value, limits)
  return not (limits.min and value < limits.min) and not (limits.max and value > limits.max)
    and not (limits.above and value <= limits.above) and not (limits.below and value >= limits.below)
end

local function with_range(name, limits)
  local parts = {}
  if limits.min then parts[#parts + 1] = ">= " .. limits.min end
  if limits.above then parts[#parts + 1] = "> " .. limits.above end
  if limits.max then parts[#parts + 1] = "<= " .. limits.max end
  if limits.below then parts[#parts + 1] = "< " .. limits.below end
  if #parts == 0 then return name end
  return name .. " " .. table.concat(parts, " and ")
end

-- limits: min, max (inclusive), above, below (exclusive). Gives a float, so that 1 and 1.0 are one recipe.
function schema.number(limits)
  limits = limits or {}
  return {
    name = with_range("a number", limits),
    check = function(value)
      if type(value) ~= "number" or value ~= value or math.abs(value) == math.huge then return nil end
      if not in_range(value, limits) then return nil, "R005" end
      return value + 0.0
    end,
  }
end

-- A whole number; 1e3 is one.
function schema.count(limits)
  limits = limits or { min = 0 }
  return {
    name = with_range("a whole number", limits),
    check = function(value)
      local whole = type(value) == "number" and math.tointeger(value)
      if not whole then return nil end
      if not in_range(whole, limits) then return nil, "R005" end
      return whole
    end,
  }
end

local function of_type(kind, name)
  return {
    name = name,
    check = function(value)
      if type(value) == kind then return value end
    end,
  }
end

schema.boolean = of_type("boolean", "true or false")
schema.string = of_type("string", "a string")
schema.callback = of_type("function", "a function")

function schema.choice(choices)
  local shown = {}
  for i, choice in ipairs(choices) do shown[i] = '"' .. choice .. '"' end
  return {
    name = "one of " .. table.concat(shown, ", "),
    check = function(value)
      for _, choice in ipairs(choices) do
        if value == choice then return value end
      end
      return nil, type(value) == "string" and "R005" or nil
    end,
  }
end

-- An object of a class (schema.class).
function schema.object(class)
  return {
    name = class.is .. " (" .. class.from .. ")",
    check = function(value)
      if getmetatable(value) == class then return value end
    end,
  }
end

-- The first type that accepts; what a later type fails on, it says itself.
function schema.either(...)
  local types = { ... }
  local names = {}
  for i, option in ipairs(types) do names[i] = option.name end
  return {
    name = table.concat(names, " or "),
    check = function(value, owner, key)
      local code
      for _, option in ipairs(types) do
        local accepted, why = option.check(value, owner, key)
        if accepted ~= nil then return accepted end
        code = code or why
      end
      return nil, code
    end,
  }
end

local function accept(field_type, value, owner, key, what)
  local accepted, code = field_type.check(value, owner, key)
  if accepted ~= nil then return accepted end
  schema.fail(code or "R003",
    label(key, what) .. " wants " .. field_type.name .. ", got " .. schema.describe(value), nil, owner, key)
end
schema.accept = accept

-- A list of one type. A name for the list goes into messages about its entries.
function schema.list(entry, name)
  return {
    name = "a list (each " .. entry.name .. ")",
    check = function(value)
      if type(value) ~= "table" or getmetatable(value) ~= nil then return nil end
      local out, count = {}, 0
      for key in pairs(value) do
        if math.type(key) ~= "integer" or key < 1 or key > #value then return nil end
        count = count + 1
      end
      if count ~= #value then return nil end
      for i, item in ipairs(value) do out[i] = accept(entry, item, value, i, name or "the list") end
      return core.inherit(out, value)
    end,
  }
end

-- ---- classes ----

-- What constructors make. `is` for messages ("an optimizer"), `from` names the constructors.
function schema.class(is, from)
  return { is = is, from = from }
end

-- Facts about an object that are not part of the document.
local facts = {}

function schema.make(class, object, about)
  facts[object] = about or {}
  return setmetatable(object, class)
end

function schema.facts(object)
  return facts[object]
end

-- ---- records ----

function schema.required(field_type) return { type = field_type, required = true } end
function schema.optional(field_type) return { type = field_type } end
function schema.default(field_type, value) return { type = field_type, fallback = value } end

local function check_names(what, given, fields, noun)
  for key, value in pairs(given) do
    if fields[key] == nil then
      if type(key) ~= "string" then
        local got = schema.describe(value)
        schema.fail("R002", what .. " has no place for " .. got .. " without a name", nil, given, key)
      end
      local names = {}
      for name in pairs(fields) do
        if type(name) == "string" then names[#names + 1] = name end
      end
      schema.fail("R002", "unknown " .. (noun or "option") .. " '" .. key .. "' for " .. what,
        schema.did_you_mean(key, names), given, key)
    end
  end
end

-- Checks `given` against `fields` (name or position -> required, optional or default) and returns a new table
-- that keeps where everything was written.
function schema.record(what, given, fields, noun)
  if type(given) ~= "table" or getmetatable(given) ~= nil then
    core.fail("R003", what .. " wants a table of options, got " .. schema.describe(given))
  end
  check_names(what, given, fields, noun)
  local out = core.inherit({}, given)
  for key, field in pairs(fields) do
    local value = given[key]
    if value ~= nil then
      out[key] = accept(field.type, value, given, key, what)
    elseif field.required then
      local missing = type(key) == "string" and " needs '" .. key .. "', " or " needs as entry " .. key .. " "
      schema.fail("R004", what .. missing .. field.type.name, nil, given, key)
    else
      out[key] = field.fallback
    end
  end
  return out
end

return core.strict(schema, "tenon.schema")
