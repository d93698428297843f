-- Schedules of the learning rate, as tagged data. Steps count from 1.
local core = require "tenon.core"
local s = require "tenon.schema"

local Schedule = s.class("a learning rate", "a number, t.lr.constant, t.lr.cosine or t.lr.wsd")
local rate, steps = s.number { min = 0 }, s.count()

local function constructor(kind, fields)
  return function(given)
    local out = s.record("t.lr." .. kind, given, fields)
    out.kind = kind
    return s.make(Schedule, out)
  end
end

local lr = {}

lr.constant = constructor("constant", { value = s.required(rate), warmup = s.default(steps, 0) })

lr.cosine = constructor("cosine", {
  peak = s.required(rate), floor = s.default(rate, 0.0), warmup = s.default(steps, 0),
  steps = s.optional(s.count { min = 1 }),
})

lr.wsd = constructor("wsd", {
  peak = s.required(rate), floor = s.default(rate, 0.0), warmup = s.default(steps, 0),
  steps = s.optional(s.count { min = 1 }), decay = s.required(steps),
})

local module = { constructors = core.strict(lr, "t.lr") }

-- A field that takes a schedule or a number.
module.type = {
  name = s.object(Schedule).name,
  check = function(value, owner, key)
    if getmetatable(value) == Schedule then return value end
    local number, code = rate.check(value)
    if not number then return nil, code end
    local made = { kind = "constant", value = number, warmup = 0 }
    core.mark(made, nil, core.place(owner, key))
    return s.make(Schedule, made)
  end,
}

-- The schedule over `run_steps` steps, where it does not say its own number.
function module.over(schedule, run_steps)
  if schedule.kind == "constant" then return schedule end
  local out = core.inherit({}, schedule)
  for key, value in pairs(schedule) do out[key] = value end
  out.steps = out.steps or run_steps
  local reserved = out.warmup + (out.decay or 0)
  if reserved > out.steps then
    s.fail("R005", string.format("the learning rate has %d steps of warm-up and decay, but only %d steps", reserved,
      out.steps), nil, schedule, "warmup")
  end
  return s.make(Schedule, out)
end

return module
