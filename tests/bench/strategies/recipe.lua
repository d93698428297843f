-- A GPT, of 10.7 million parameters if nothing is said, whose mesh and strategies are parameters.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "text file to train on" },
  dp = t.count { 1, min = 1, doc = "ranks that share the batch" },
  tp = t.count { 1, min = 1, doc = "ranks that share heads and widths" },
  pp = t.count { 1, min = 1, doc = "stages" },
  cp = t.count { 1, min = 1, doc = "ranks that share sequences" },
  zero = t.count { 0, doc = "stage of ZeRO" },
  steps = t.count { 12, min = 1, doc = "optimizer steps" },
  layers = t.count { 6, min = 1, doc = "layers" },
  heads = t.count { 6, min = 1, doc = "heads" },
  width = t.count { 384, min = 1, doc = "width" },
}

local strategies = { t.strategy.data {} }
local function add(wanted, strategy)
  if wanted then strategies[#strategies + 1] = strategy end
end
add(p.tp > 1, t.strategy.tensor { sequence = true })
add(p.pp > 1, t.strategy.pipeline {})
add(p.cp > 1, t.strategy.context {})
add(p.zero > 0, t.strategy.zero { stage = math.max(p.zero, 1) })

return t.run {
  name = "strategies",
  steps = p.steps,
  batch = 16,
  microbatches = p.pp > 1 and 4 or 1,
  model = t.models.gpt2 { layers = p.layers, heads = p.heads, width = p.width, vocab = 256, context = 128 },
  data = t.data.text { file = p.file, valid = 0 },
  optim = t.optim.adamw { lr = 1e-4, clip = 1.0 },
  mesh = t.mesh { dp = p.dp, pp = p.pp, cp = p.cp, tp = p.tp },
  strategies = strategies,
}
