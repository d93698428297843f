-- Layers as functions on values. nn.model records what they do and returns the model of a resolved recipe
-- (docs/reference/resolved-recipe.md).
local core = require "tenon.core"
local s = require "tenon.schema"
local graph = require "tenon.graph"

local Param, Value = graph.Param, graph.Value
local Routing = s.class("a routing", "t.nn.route")
local Init = s.class("an initial value", "t.nn.normal, t.nn.uniform, t.nn.zeros or t.nn.ones")

local nn = { blocks = graph.blocks, model = graph.model }

local show_dims, same_dims, inner, token_dims = graph.show_dims, graph.same_dims, graph.inner, graph.token_dims
local check_value, check_pair, check_operands = graph.check_value, graph.check_pair, graph.check_operands
local emit, input, attr = graph.emit, graph.input, graph.attr
local new_param, use_param = graph.new_param, graph.use_param

-- The comment of each function is its row in docs/reference/lua.md, "call: meaning".

-- ---- parameters ----

-- nn.normal(std): for `init`: normally distributed around 0.
function nn.normal(std)
  return s.make(Init, { kind = "normal", std = s.accept(s.number { min = 0 }, std, nil, "std", "nn.normal") })
end
-- nn.uniform(bound): for `init`: uniform from -bound to bound.
function nn.uniform(bound)
  return s.make(Init, { kind = "uniform", bound = s.accept(s.number { min = 0 }, bound, nil, "bound", "nn.uniform") })
end
-- nn.zeros(): for `init`.
function nn.zeros() return s.make(Init, { kind = "zeros" }) end
-- nn.ones(): for `init`.
function nn.ones() return s.make(Init, { kind = "ones" }) end

-- nn.param { name = "wte.weight", dims = { { "vocab", 256 }, { "hidden", 64 } }, init = nn.normal(0.02) }: a
-- parameter for several layers: `weight = p` in place of name and dims. It joins the model when a layer uses it.
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

-- nn.embedding { ids, name = "wte", dims = { { "vocab", 256 }, { "hidden", 64 } }, std = 0.02 }: rows of the
-- parameter `name.weight`, or of `weight = nn.param { ... }` in place of name, dims and std.
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
  check_operands(what, given, "embedding", { ids })
  if ids.name == "positions" then
    g.context = math.min(g.context or weight.dims[1][2], weight.dims[1][2])
  end
  return emit(g, "embedding", record.name or "embedding", { ids, use_param(g, what, weight) })
end

local function is_routed(x) return x.dims[2][1] == "routing_group" end

local function check_tokens(what, x, given)
  if is_routed(x) then
    s.fail("R003", what .. " wants a value for each token, got " .. show_dims(x.dims),
      "between nn.dispatch and nn.combine stands nn.grouped_linear", given, 1)
  end
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

-- nn.linear { x, name = "fc", out = { "ffn", 256 }, bias = false, std = 0.02 }: x weight^T + bias: all dims of x
-- behind batch and seq are contracted with `name.weight`, or with `weight = nn.param { ... }` in place of name, out
-- and std; `out` is one dim or a list.
function nn.linear(given)
  local what = "nn.linear"
  local record, g = layer(what, given, {
    name = s.optional(s.string), out = s.optional(graph.one_or_more_dims), bias = s.default(s.boolean, false),
    std = s.optional(s.number { min = 0 }), weight = s.optional(s.object(Param)),
  })
  local x = record[1]
  check_tokens(what, x, given)
  local from = inner(x.dims)
  local weight = linear_weight(what, record, given, from)
  local num_out = #weight.dims - #from
  local out = { table.unpack(weight.dims, 1, math.max(num_out, 0)) }
  if num_out < 1 or not same_dims({ table.unpack(weight.dims, num_out + 1) }, from) then
    s.fail("R005", string.format("%s: the weight %s does not end with the dims of x, %s", what, show_dims(weight.dims),
      show_dims(from)), nil, given, "weight")
  end
  local base = record.name or "linear"
  local y = emit(g, "linear", base, { x, use_param(g, what, weight) })
  if not record.bias then return y end
  local bias = new_param(need_name(what, record, given) .. ".bias", out, nn.zeros())
  return emit(g, "bias_add", base .. ".biased", { y, use_param(g, what, bias) })
end

local function norm(what, kind, given)
  local record, g = layer(what, given, {
    name = s.required(s.string), eps = s.default(attr(kind, "eps"), 1e-5),
  })
  local x = record[1]
  check_operands(what, given, kind, { x })
  return record, g, x
end

-- nn.layernorm { x, name = "ln_1", eps = 1e-5 }: over the last dim, with weight and bias.
function nn.layernorm(given)
  local what = "nn.layernorm"
  local record, g, x = norm(what, "layernorm", given)
  local weight = use_param(g, what, new_param(record.name .. ".weight", inner(x.dims), nn.ones()))
  local bias = use_param(g, what, new_param(record.name .. ".bias", inner(x.dims), nn.zeros()))
  return emit(g, "layernorm", record.name, { x, weight, bias }, { eps = record.eps })
end

-- nn.rmsnorm { x, name = "norm", eps = 1e-5 }: over the last dim, with weight.
function nn.rmsnorm(given)
  local what = "nn.rmsnorm"
  local record, g, x = norm(what, "rmsnorm", given)
  local weight = use_param(g, what, new_param(record.name .. ".weight", inner(x.dims), nn.ones()))
  return emit(g, "rmsnorm", record.name, { x, weight }, { eps = record.eps })
end

-- nn.gelu(x): tanh approximation.
function nn.gelu(x)
  check_value("nn.gelu", x)
  return emit(x.graph, "gelu", "gelu", { x })
end

-- nn.softcap { x, cap = 30 }: cap * tanh(x / cap).
function nn.softcap(given)
  local record, g = layer("nn.softcap", given, { cap = s.required(attr("softcap", "cap")) })
  return emit(g, "softcap", "softcap", { record[1] }, { cap = record.cap })
end

-- nn.swiglu(gate, up): silu(gate) * up.
function nn.swiglu(gate, up)
  check_pair("nn.swiglu", gate, up)
  return emit(gate.graph, "swiglu", "swiglu", { gate, up })
end

-- nn.add(x, y): x + y.
function nn.add(x, y)
  check_pair("nn.add", x, y)
  return emit(x.graph, "add", "add", { x, y })
end

-- nn.rope { x, theta = 10000 }: rotary positions on the last dim, halves rotated against each other.
function nn.rope(given)
  local record, g = layer("nn.rope", given, { theta = s.default(attr("rope", "theta"), 10000.0) })
  local x = record[1]
  check_operands("nn.rope", given, "rope", { x })
  return emit(g, "rope", "rope", { x, input(g, "positions") }, { theta = record.theta, inverse = 0 })
end

-- nn.attention { q, k, v, scale = 1 / sqrt(head) }: causal; `q` is `[batch seq group rep head]`, `k` and
-- `v` are `[batch seq group head]`.
function nn.attention(given)
  local record, g = layer("nn.attention", given, {
    [2] = s.required(s.object(Value)), [3] = s.required(s.object(Value)),
    scale = s.optional(attr("attention", "scale")),
  })
  local q = record[1]
  local k = check_value("nn.attention", record[2], given, 2)
  local v = check_value("nn.attention", record[3], given, 3)
  check_operands("nn.attention", given, "attention", { q, k, v })
  local positions = input(g, "positions")
  return emit(g, "attention", "attention", { q, k, v, positions, positions },
    { scale = record.scale or 1 / math.sqrt(q.dims[5][2]) })
end

-- nn.dropout { x, p = 0.1 }: in training alone; nothing when p is 0.
function nn.dropout(given)
  local record, g = layer("nn.dropout", given, { p = s.required(attr("dropout", "p")) })
  local x = record[1]
  if record.p == 0 then return x end
  local key = g.num_dropouts * 65536  -- the core adds the round
  g.num_dropouts = g.num_dropouts + 1
  return emit(g, "dropout", "dropout", { x, input(g, "samples"), input(g, "positions"), input(g, "step") },
    { p = record.p, key = key })
end

-- ---- mixture of experts ----

-- nn.route { x, name = "router", experts = 8, top_k = 2, group = 64, capacity_factor = 1.25, renormalise = true,
-- aux = 0.01, std = 0.02 }: who goes to which expert, for `nn.dispatch` and `nn.combine`; the router is `name.weight`.
-- Each `group` of consecutive tokens finds ceil(capacity_factor * group * top_k / experts) slots at every expert; aux
-- is the coefficient of the balancing loss.
function nn.route(given)
  local what = "nn.route"
  local record, g = layer(what, given, {
    name = s.required(s.string), experts = s.required(attr("dispatch", "experts")),
    top_k = s.default(attr("route_topk", "k"), 2), group = s.required(attr("route_topk", "group")),
    capacity_factor = s.default(s.number { above = 0 }, 1.25), renormalise = s.default(s.boolean, true),
    aux = s.default(attr("route_topk", "aux"), 0.01), std = s.default(s.number { min = 0 }, 0.02),
  })
  local x, experts, k, group = record[1], record.experts, record.top_k, record.group
  if #x.dims ~= 3 then
    s.fail("R003", what .. " wants x of [batch seq hidden], got " .. show_dims(x.dims), nil, given, 1)
  end
  if k > experts then
    s.fail("R005", string.format("%s: 'top_k' = %d is more than 'experts' = %d", what, k, experts), nil, given, "top_k")
  end
  local weight = new_param(record.name .. ".weight", { { "expert", experts }, x.dims[3] }, nn.normal(record.std))
  local logits = emit(g, "linear", record.name, { x, use_param(g, what, weight) })
  -- A token's choices are different experts, so more slots than tokens are never used.
  local capacity = math.min(group, math.ceil(record.capacity_factor * group * k / experts))
  local out = graph.emit_all(g, "route_topk", record.name .. ".gate", { logits, input(g, "samples") },
    { k = k, group = group, capacity = capacity, renormalise = record.renormalise and 1 or 0, aux = record.aux })
  g.groups[#g.groups + 1] = group
  return s.make(Routing, {
    gate = out[1], expert = out[2], slot = out[3], hidden = x.dims[3], group = group,
    dims = { { "batch" }, { "routing_group" }, { "expert", experts }, { "slot", capacity }, x.dims[3] },
  })
end

local function check_routing(what, routing)
  s.accept(s.object(Routing), routing, nil, "routing", what)
  check_value(what, routing.gate)
  return routing
end

-- nn.dispatch(x, routing): the tokens' rows at the slots that `nn.route` gave them,
-- `[batch routing_group expert slot hidden]`; a dropped choice is nowhere, an empty slot is 0.
function nn.dispatch(x, routing)
  local what = "nn.dispatch"
  check_value(what, x)
  check_routing(what, routing)
  local want = token_dims { routing.hidden }
  if is_routed(x) or not same_dims(x.dims, want) then
    core.fail("R005", what .. " wants x of " .. show_dims(want) .. ", got " .. show_dims(x.dims))
  end
  return emit(x.graph, "dispatch", "dispatch", { x, routing.expert, routing.slot },
    { group = routing.group, experts = routing.dims[3][2], capacity = routing.dims[4][2] })
end

-- nn.combine(y, routing): back to tokens, `[batch seq hidden]`: the sum over a token's choices of gate * y.
function nn.combine(y, routing)
  local what = "nn.combine"
  check_value(what, y)
  check_routing(what, routing)
  local want = { table.unpack(routing.dims, 1, 4) }
  want[5] = y.dims[#y.dims]
  if not is_routed(y) or not same_dims(y.dims, want) then
    core.fail("R005", what .. " wants y of " .. show_dims(want) .. ", got " .. show_dims(y.dims))
  end
  return emit(y.graph, "combine", "combine", { y, routing.gate, routing.expert, routing.slot },
    { group = routing.group })
end

-- nn.grouped_linear { x, name = "fc", out = { "ffn", 256 }, std = 0.02 }: behind `nn.dispatch`, a linear map of its own
-- for every expert; all dims of x behind the slot are contracted.
function nn.grouped_linear(given)
  local what = "nn.grouped_linear"
  local record, g = layer(what, given, {
    name = s.required(s.string), out = s.required(graph.one_or_more_dims),
    std = s.default(s.number { min = 0 }, 0.02),
  })
  local x = record[1]
  if not is_routed(x) then
    s.fail("R003", what .. " wants x of [batch routing_group expert slot ...], got " .. show_dims(x.dims),
      "nn.dispatch makes one", given, 1)
  end
  local dims = { x.dims[3] }
  for _, dim in ipairs(record.out) do dims[#dims + 1] = dim end
  for _, dim in ipairs { table.unpack(x.dims, 5) } do dims[#dims + 1] = dim end
  local weight = new_param(record.name .. ".weight", dims, nn.normal(record.std))
  return emit(g, "grouped_linear", record.name, { x, use_param(g, what, weight) })
end

return { functions = core.strict(nn, "t.nn"), Model = graph.Model }
