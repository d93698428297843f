local nn = (require "tenon").nn
local m = nn.model("m", function(tokens, positions)
local x = nn.embedding { tokens, name = "e", dims = { { "vocab", 8 }, { "hidden", 4 } } }
local a = nn.linear { x, name = "f", out = { "ffn", 8 } }
return nn.linear { a, name = "f", out = { "ffn", 9 } }
end)
