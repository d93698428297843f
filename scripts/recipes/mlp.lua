-- The smallest recipe: no attention, trains in seconds. A first check that everything works.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "text file to train on" },
  steps = t.count { 200, min = 1, doc = "optimizer steps" },
  lr = t.number { 3e-3, min = 0, doc = "learning rate" },
}

return t.run {
  steps = p.steps,
  batch = 16,
  context = 64,
  model = t.models.mlp { layers = 2, width = 64, vocab = 256, norm = "rmsnorm" },
  data = t.data.text { file = p.file, valid = 0.05 },
  optim = t.optim.adamw { lr = p.lr, clip = 1.0 },
}
