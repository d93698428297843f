-- The last step of an evaluation: takes what the recipe returned.
local core = require "tenon.core"
local s = require "tenon.schema"
local params = require "tenon.params"
local run = require "tenon.run"

return function(result)
  local parameters = params.declared()
  if getmetatable(result) ~= run.Run then
    local got = s.describe(result)
    core.fail("R016", "a recipe returns t.run { ... }, this one returns " .. got, nil, core.last_return())
  end
  return { recipe = result, parameters = parameters }
end
