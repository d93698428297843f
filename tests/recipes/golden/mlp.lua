-- The model of docs/reference/resolved-recipe.md.
local t = require "tenon"

return t.run {
  name = "tiny",
  steps = 100,
  batch = 8,
  context = 32,
  model = t.models.mlp { layers = 2, width = 32, vocab = 256, ffn = 64 },
  data = t.data.text { file = "corpus.txt", valid = 0.05 },
  optim = t.optim.plugin("optimizer/signsgd", { lr = 0.01, momentum = 0.5, clip = 2 }),
}
