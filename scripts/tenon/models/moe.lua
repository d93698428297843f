-- A mixture of experts: the decoder of Llama whose feed-forward part, in every `every`-th layer, is a choice of
-- `top_k` among `experts` SwiGLU networks for each token.
local s = require "tenon.schema"
local decoder = require "tenon.models.decoder"
local attr = require("tenon.graph").attr
local nn = require("tenon.nn").functions

local size = s.count { min = 1 }

local own = {
  experts = s.required(size),
  top_k = s.default(size, 2),
  capacity_factor = s.default(s.number { above = 0 }, 1.25),
  group = s.default(size, 64),
  renormalise = s.default(s.boolean, true),
  aux = s.default(attr("route_topk", "aux"), 0.01),
  every = s.default(size, 1),
}

local function mixture(o, x, name)
  local routing = nn.route {
    x, name = name .. ".router", experts = o.experts, top_k = o.top_k, capacity_factor = o.capacity_factor,
    group = o.group, renormalise = o.renormalise, aux = o.aux, std = o.std,
  }
  local h, experts = nn.dispatch(x, routing), name .. ".experts"
  local gate = nn.grouped_linear { h, name = experts .. ".gate_proj", out = { "ffn", o.ffn }, std = o.std }
  local up = nn.grouped_linear { h, name = experts .. ".up_proj", out = { "ffn", o.ffn }, std = o.std }
  local y = nn.swiglu(gate, up)
  y = nn.grouped_linear { y, name = experts .. ".down_proj", out = { "hidden", o.width }, std = o.std }
  return nn.combine(y, routing)
end

return function(given)
  local what = "t.models.moe"
  local o = decoder.options(what, given, own)
  if o.top_k > o.experts then
    s.fail("R005", string.format("'top_k' = %d of %s is more than 'experts' = %d", o.top_k, what, o.experts), nil,
      given, "top_k")
  end
  if o.layers % o.every ~= 0 then
    s.fail("R005", string.format("'every' = %d of %s does not divide 'layers' = %d", o.every, what, o.layers), nil,
      given, "every")
  end
  local parts = {}
  for i = 1, o.every do parts[i] = i < o.every and decoder.dense or mixture end
  return decoder.model("moe", o, parts)
end
