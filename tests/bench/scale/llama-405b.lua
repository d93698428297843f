-- Llama 3 405B on paper: what `tenon check --world 16384` compiles and proves without any hardware.
local t = require "tenon"

local p = t.params {
  file = t.file { doc = "any text file: the data are not read" },
  cp = t.count { 1, min = 1, doc = "ranks that share sequences" },
  exchange = t.choice { "all_gather", of = { "all_gather", "ring" }, doc = "of keys and values with cp > 1; Llama 3 gathered them" },
  microbatches = t.count { 16, min = 1, doc = "of a step" },
  batch = t.count { 2048, min = 1, doc = "samples per step" },
  dp = t.count { 0, min = 0, doc = "ranks that share the batch; 0: what is left" },
}

local strategies = {
  t.strategy.data {},
  t.strategy.pipeline {},
  t.strategy.tensor { sequence = true },
  t.strategy.zero { stage = 1 },
}
if p.cp > 1 then strategies[#strategies + 1] = t.strategy.context { exchange = p.exchange } end

return t.run {
  name = "llama-405b",
  steps = 100,
  batch = p.batch,
  microbatches = p.microbatches,
  context = 8192,
  model = t.models.llama { layers = 126, heads = 128, kv_heads = 8, width = 16384, ffn = 53248, vocab = 128256 },
  data = t.data.text { file = p.file },
  optim = t.optim.adamw { lr = 8e-5, clip = 1.0 },
  mesh = t.mesh { { "dp", p.dp }, { "pp", 16 }, { "cp", p.cp }, { "tp", 8 } },
  strategies = strategies,
}
