-- A network without attention: each token is predicted from the one before it. Small, for tests and first
-- steps.
local s = require "tenon.schema"
local nn = require("tenon.nn").functions

local size = s.count { min = 1 }

local fields = {
  layers = s.required(size),
  width = s.required(size),
  vocab = s.required(size),
  ffn = s.optional(size),
  norm = s.default(s.choice { "none", "rmsnorm" }, "none"),
  std = s.default(s.number { min = 0 }, 0.02),
}

return function(given)
  local o = s.record("t.models.mlp", given, fields)
  o.ffn = o.ffn or 4 * o.width
  return nn.model("mlp", function(tokens)
    local x = nn.embedding { tokens, name = "wte", dims = { { "vocab", o.vocab }, { "hidden", o.width } }, std = o.std }
    x = nn.blocks(x, o.layers, function(h, i)
      local u = h
      if o.norm == "rmsnorm" then u = nn.rmsnorm { h, name = "h." .. i .. ".norm" } end
      u = nn.linear { u, name = "h." .. i .. ".fc", out = { "ffn", o.ffn }, std = o.std }
      u = nn.linear { nn.gelu(u), name = "h." .. i .. ".proj", out = { "hidden", o.width }, std = o.std }
      return nn.add(h, u)
    end)
    return nn.linear { x, name = "head", out = { "vocab", o.vocab }, std = o.std }
  end)
end
