-- The vocabulary of recipes: local t = require "tenon". See docs/reference/lua.md.
local core = require "tenon.core"
local plugin = require "tenon.plugin"

local function group(name, members) return core.strict(members, name) end

local t = {
  run = require("tenon.run").constructor,
  mesh = require("tenon.mesh").constructor,
  optim = require("tenon.optim").constructors,
  lr = require("tenon.lr").constructors,
  data = require("tenon.data").constructors,
  nn = require("tenon.nn").functions,
  models = group("t.models", {
    gpt2 = require "tenon.models.gpt2",
    llama = require "tenon.models.llama",
    mlp = require "tenon.models.mlp",
    moe = require "tenon.models.moe",
  }),
  plugin = plugin.plugin,
  strategy = group("t.strategy", {
    context = plugin.constructor "parallel/context",
    data = plugin.constructor "parallel/data",
    expert = plugin.constructor "parallel/expert",
    pipeline = plugin.constructor "parallel/pipeline",
    tensor = plugin.constructor "parallel/tensor",
    zero = plugin.constructor "parallel/zero",
  }),
  sink = group("t.sink", { jsonl = plugin.constructor "sink/jsonl" }),
}

for name, constructor in pairs(require "tenon.params") do
  if name ~= "declared" then t[name] = constructor end
end

return group("t", t)
