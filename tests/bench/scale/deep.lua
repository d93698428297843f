-- A narrow GPT of any depth and number of microbatches: what compiling and proving cost as they grow.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "any text file: the data are not read" },
  layers = t.count { 12, min = 1, doc = "blocks" },
  microbatches = t.count { 1, min = 1, doc = "of a step, of one sample each" },
}

return t.run {
  name = "deep",
  steps = 100,
  batch = p.microbatches,
  microbatches = p.microbatches,
  context = 16,
  model = t.models.gpt2 { layers = p.layers, heads = 2, width = 32, vocab = 256, context = 16 },
  data = t.data.text { file = p.file },
  optim = t.optim.adamw { lr = 1e-3, clip = 1.0 },
  strategies = { t.strategy.data {} },
}
