--! lr=0.5
local t = require "tenon"
local p = t.params { lr = 0.1 }
return t.run { name = "x", steps = 1, batch = 1, context = 4, model = t.models.mlp { layers = 1, width = 8, vocab = 16, ffn = 8 }, data = t.data.text { file = "c" }, optim = t.optim.sgd { lr = p.lr } }
