-- Layers as functions on values. nn.model records what they do and returns the model of a resolved recipe
-- (docs/reference/resolved-recipe.md).
local core = require "tenon.core"
local s = require "tenon.schema"
local graph = require "tenon.graph"

local Param, Value = graph.Param, graph.Value
local Init = s.class("an initial value", "t.nn.normal, t.nn.uniform, t.nn.zeros or t.nn.ones")

local nn = { blocks = graph.blocks, model = graph.model }

local show_dims, same_dims, inner, token_dims = graph.show_dims, graph.same_dims, graph.inner, graph.token_dims
local check_value, check_pair, emit, input = graph.check_value, graph.check_pair, graph.emit, graph.input
local new_param, use_param = graph.new_param, graph.use_param

-- ---- parameters ----

function nn.normal(std)
  return s.make(Init, { kind = "normal", std = s.accept(s.number { min = 0 }, std, nil, "std", "nn.normal") })
end
function nn.uniform(bound)
  return s.make(Init, { kind = "uniform", bound = s.accept(s.number { min = 0 }, bound, nil, "bound", "nn.uniform") })
end
function nn.zeros() return s.make(Init, { kind = "zeros" }) end
function nn.ones() return s.make(Init, { kind = "ones" }) end

-- nn.param { name = "wte.weight", dims = { { "vocab", 256 }, { "hidden", 64 } }, init = nn.normal(0.02) }: for a
-- parameter that several layers use. It joins the model when a layer uses it.
function nn.param(given)
  local record = s.record("nn.param", given, {
    name = s.required(s.string), dims = s.required(graph.dims_type), init = s.required(s.object(Init)),
  })
  return s.make(Param, record)
end

-- ---- layers ----

local function layer(what, given, fields)
  fields[1] = s.required(s.object(Value))
  local record = s.record(what, given, fields)
  check_value(what, record[1], given, 1)
  return record, record[1].graph
end

local function need_name(what, record, given)
  if not record.name then s.fail("R004", what .. " needs 'name', a string", nil, given) end
  return record.name
end

-- nn.embedding { ids, name = "wte", dims = { { "vocab", 256 }, { "hidden", 64 } }, std = 0.02 }, or with
-- weight = nn.param { ... } in place of name, dims and std. y = weight[ids]
function nn.embedding(given)
  local what = "nn.embedding"
  local record, g = layer(what, given, {
    name = s.optional(s.string), dims = s.optional(graph.dims_type), std = s.default(s.number { min = 0 }, 0.02),
    weight = s.optional(s.object(Param)),
  })
  local weight = record.weight
  if not weight then
    local name = need_name(what, record, given)
    if not record.dims then s.fail("R004", what .. " needs 'dims', two of them", nil, given) end
    weight = new_param(name .. ".weight", record.dims, nn.normal(record.std))
  end
  if #weight.dims ~= 2 then
    s.fail("R005", what .. ": 'dims' are the rows and the columns of the table, got " .. show_dims(weight.dims), nil,
      given, record.weight and "weight" or "dims")
  end
  local ids = record[1]
  if #ids.dims ~= 2 then
    s.fail("R003", what .. " wants ids of [batch seq], got " .. show_dims(ids.dims), nil, given, 1)
  end
  if ids.name == "positions" then
    g.context = math.min(g.context or weight.dims[1][2], weight.dims[1][2])
  end
  return emit(g, "embedding", record.name or "embedding", { ids, use_param(g, what, weight) },
    { { "y", token_dims { weight.dims[2] } } })
end

local function linear_weight(what, record, given, from)
  if record.weight then
    for _, key in ipairs { "out", "std" } do
      if record[key] then
        s.fail("R002", what .. ": '" .. key .. "' has no meaning beside 'weight'", nil, given, key)
      end
    end
    return record.weight
  end
  local name = need_name(what, record, given)
  if not record.out then s.fail("R004", what .. " needs 'out', " .. graph.one_or_more_dims.name, nil, given) end
  local dims = { table.unpack(record.out) }
  for _, dim in ipairs(from) do dims[#dims + 1] = dim end
  return new_param(name .. ".weight", dims, nn.normal(record.std or 0.02))
end

-- nn.linear { x, name = "fc", out = { "ffn", 256 }, bias = false, std = 0.02 }: all dims of x behind batch and
-- seq are contracted. Or with weight = nn.param { ... } in place of name, out and std. y = x weight^T + bias
function nn.linear(given)
  local what = "nn.linear"
  local record, g = layer(what, given, {
    name = s.optional(s.string), out = s.optional(graph.one_or_more_dims), bias = s.default(s.boolean, false),
    std = s.optional(s.number { min = 0 }), weight = s.optional(s.object(Param)),
  })
  local x = record[1]
  local from = inner(x.dims)
  local weight = linear_weight(what, record, given, from)
  local num_out = #weight.dims - #from
  local out = { table.unpack(weight.dims, 1, math.max(num_out, 0)) }
  if num_out < 1 or not same_dims({ table.unpack(weight.dims, num_out + 1) }, from) then
    s.fail("R005", string.format("%s: the weight %s does not end with the dims of x, %s", what, show_dims(weight.dims),
      show_dims(from)), nil, given, "weight")
  end
  local base = record.name or "linear"
  local y = emit(g, "linear", base, { x, use_param(g, what, weight) }, { { "y", token_dims(out) } })
  if not record.bias then return y end
  local bias = new_param(need_name(what, record, given) .. ".bias", out, nn.zeros())
  return emit(g, "bias_add", base .. ".biased", { y, use_param(g, what, bias) }, { { "y", y.dims } })
end

local function norm(what, given)
  local record, g = layer(what, given, {
    name = s.required(s.string), eps = s.default(s.number { above = 0 }, 1e-5),
  })
  local x = record[1]
  if #x.dims ~= 3 then
    s.fail("R003", what .. " wants x of [batch seq hidden], got " .. show_dims(x.dims), nil, given, 1)
  end
  return record, g, x
end

-- nn.layernorm { x, name = "ln_1", eps = 1e-5 }: over the last dim, with weight and bias.
function nn.layernorm(given)
  local what = "nn.layernorm"
  local record, g, x = norm(what, given)
  local weight = use_param(g, what, new_param(record.name .. ".weight", inner(x.dims), nn.ones()))
  local bias = use_param(g, what, new_param(record.name .. ".bias", inner(x.dims), nn.zeros()))
  local rows = { { "batch" }, { "seq" } }
  return emit(g, "layernorm", record.name, { x, weight, bias },
    { { "y", x.dims }, { "mean", rows }, { "rstd", rows } }, { eps = record.eps })
end

-- nn.rmsnorm { x, name = "norm", eps = 1e-5 }: over the last dim, with weight.
function nn.rmsnorm(given)
  local what = "nn.rmsnorm"
  local record, g, x = norm(what, given)
  local weight = use_param(g, what, new_param(record.name .. ".weight", inner(x.dims), nn.ones()))
  return emit(g, "rmsnorm", record.name, { x, weight }, { { "y", x.dims }, { "rstd", { { "batch" }, { "seq" } } } },
    { eps = record.eps })
end

-- nn.gelu(x): tanh approximation.
function nn.gelu(x)
  check_value("nn.gelu", x)
  return emit(x.graph, "gelu", "gelu", { x }, { { "y", x.dims } })
end

-- nn.swiglu(gate, up): silu(gate) * up.
function nn.swiglu(gate, up)
  check_pair("nn.swiglu", gate, up)
  return emit(gate.graph, "swiglu", "swiglu", { gate, up }, { { "y", gate.dims } })
end

-- nn.add(x, y)
function nn.add(x, y)
  check_pair("nn.add", x, y)
  return emit(x.graph, "add", "add", { x, y }, { { "z", x.dims } })
end

-- nn.rope { x, theta = 10000 }: rotary positions on the last dim, halves rotated against each other.
function nn.rope(given)
  local record, g = layer("nn.rope", given, { theta = s.default(s.number { above = 0 }, 10000.0) })
  local x = record[1]
  local last = x.dims[#x.dims]
  if #x.dims < 3 or last[2] % 2 ~= 0 then
    s.fail("R005", "nn.rope wants an even last dim, got " .. show_dims(x.dims), nil, given, 1)
  end
  return emit(g, "rope", "rope", { x, input(g, "positions") }, { { "y", x.dims } },
    { theta = record.theta, inverse = 0 })
end

local function check_attention(q, k, v, given)
  local what = "nn.attention"
  if #q.dims ~= 5 then
    s.fail("R003", what .. " wants q of [batch seq group rep head], got " .. show_dims(q.dims), nil, given, 1)
  end
  local want = token_dims { q.dims[3], q.dims[5] }
  for i, side in ipairs { k, v } do
    if not same_dims(side.dims, want) then
      s.fail("R003", string.format("%s wants %s of %s, got %s", what, i == 1 and "k" or "v", show_dims(want),
        show_dims(side.dims)), nil, given, i + 1)
    end
  end
end

-- nn.attention { q, k, v, scale = 1 / sqrt(head) }: causal; q of [.. group rep head], k and v of [.. group head].
function nn.attention(given)
  local record, g = layer("nn.attention", given, {
    [2] = s.required(s.object(Value)), [3] = s.required(s.object(Value)), scale = s.optional(s.number { above = 0 }),
  })
  local q = record[1]
  local k = check_value("nn.attention", record[2], given, 2)
  local v = check_value("nn.attention", record[3], given, 3)
  check_attention(q, k, v, given)
  local lse = { { "batch" }, q.dims[3], q.dims[4], { "seq" } }
  local positions = input(g, "positions")
  return emit(g, "attention", "attention", { q, k, v, positions, positions }, { { "o", q.dims }, { "lse", lse } },
    { scale = record.scale or 1 / math.sqrt(q.dims[5][2]) })
end

-- nn.dropout { x, p = 0.1 }: nothing when p is 0.
function nn.dropout(given)
  local record, g = layer("nn.dropout", given, { p = s.required(s.number { min = 0, below = 1 }) })
  local x = record[1]
  if record.p == 0 then return x end
  local key = g.num_dropouts * 65536  -- the core adds the round
  g.num_dropouts = g.num_dropouts + 1
  return emit(g, "dropout", "dropout",
    { x, input(g, "samples"), input(g, "positions"), input(g, "step") }, { { "y", x.dims } },
    { p = record.p, key = key })
end

return { functions = core.strict(nn, "t.nn"), Model = graph.Model }
