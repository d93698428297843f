-- A dense layer and one of experts in each round; the rest by default.
local t = require "tenon"

return t.run {
  steps = 100,
  batch = 4,
  context = 16,
  model = t.models.moe {
    layers = 4, heads = 4, kv_heads = 2, width = 16, vocab = 32, ffn = 24, every = 2,
    experts = 4, top_k = 2, group = 8, capacity_factor = 1, aux = 0.02,
  },
  data = t.data.text { file = "corpus.txt" },
  optim = t.optim.adamw { lr = 1e-3 },
  strategies = { t.strategy.data {}, t.strategy.expert {} },
}
