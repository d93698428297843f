-- The mesh: axes in order, major first. A size of 0 takes what is left of the number of ranks.
local core = require "tenon.core"
local s = require "tenon.schema"

local Mesh = s.class("a mesh", "t.mesh { dp = 2 }")
local size = s.count()

-- Order of axes that are given by name.
local known = { "dp", "pp", "cp", "tp" }

local function check_one_rest(axes, given)
  local rest
  for _, axis in ipairs(axes) do
    if axis[2] == 0 and rest then
      local both = "'" .. rest .. "' and '" .. axis[1] .. "'"
      s.fail("R005", "only one axis of a mesh can have size 0, got " .. both, nil, given)
    end
    rest = axis[2] == 0 and axis[1] or rest
  end
end

local function named(given)
  local fields = {}
  for _, axis in ipairs(known) do fields[axis] = s.optional(size) end
  local record = s.record("t.mesh", given, fields, "axis")
  local axes = core.inherit({}, given)
  for _, axis in ipairs(known) do
    if record[axis] then
      axes[#axes + 1] = { axis, record[axis] }
      core.mark(axes, #axes, core.place(given, axis))
    end
  end
  return axes
end

local function ordered(given)
  local pair = {
    name = "a pair { \"axis\", size }",
    check = function(value)
      if type(value) ~= "table" or #value ~= 2 or type(value[1]) ~= "string" then return nil end
      local number, code = size.check(value[2])
      if not number then return nil, code end
      return core.inherit({ value[1], number }, value)
    end,
  }
  return s.accept(s.list(pair, "t.mesh"), given, { given }, 1, "t.mesh")
end

-- t.mesh { dp = 2, tp = 4 }, or t.mesh { { "dp", 2 }, { "tp", 4 } } for any names and order.
local function mesh(given)
  if type(given) ~= "table" then core.fail("R003", "t.mesh wants a table of axes, got " .. s.describe(given)) end
  local axes = #given > 0 and ordered(given) or named(given)
  if #axes == 0 then s.fail("R004", "t.mesh needs an axis", "t.mesh { dp = 0 }: all ranks", given) end
  check_one_rest(axes, given)
  return s.make(Mesh, axes)
end

return { constructor = mesh, Mesh = Mesh }
