-- The ops that recipes are made of: operands with their dims, as docs/reference/ops.md has them, attributes with their
-- ranges, what divides sizes, and what letters stand for. Written by scripts/dev/generate-docs from
-- core/graph/op_rows.cpp; do not edit.
return {
  letters = {
    b = "batch",
    s = "seq",
    t = "seq",
    h = "hidden",
    v = "vocab",
    g = "group",
    r = "rep",
    d = "head",
    e = "expert",
    k = "choice",
    n = "routing_group",
    c = "slot",
  },
  kinds = {
    embedding = {
      inputs = { { "ids", "b s" }, { "w", "v h" } },
      outputs = { { "y", "b s h" } },
    },
    layernorm = {
      inputs = { { "x", "b s h" }, { "w", "h" }, { "b", "h" } },
      outputs = { { "y", "b s h" }, { "mean", "b s" }, { "rstd", "b s" } },
      attrs = {
        eps = { above = 0 },
      },
    },
    rmsnorm = {
      inputs = { { "x", "b s h" }, { "w", "h" } },
      outputs = { { "y", "b s h" }, { "rstd", "b s" } },
      attrs = {
        eps = { above = 0 },
      },
    },
    linear = {
      inputs = { { "x", "b s k.." }, { "w", "o.. k.." } },
      outputs = { { "y", "b s o.." } },
    },
    bias_add = {
      inputs = { { "x", "b s o.." }, { "bias", "o.." } },
      outputs = { { "y", "b s o.." } },
    },
    rope = {
      inputs = { { "x", "b s e.. d" }, { "pos", "b s" } },
      outputs = { { "y", "b s e.. d" } },
      attrs = {
        theta = { above = 0 },
        inverse = { whole = true, min = 0, max = 1 },
      },
      divisors = { d = 2 },
    },
    attention = {
      inputs = { { "q", "b s g r d" }, { "k", "b t g d" }, { "v", "b t g d" }, { "qpos", "b s" }, { "kpos", "b t" } },
      outputs = { { "o", "b s g r d" }, { "lse", "b g r s" } },
      attrs = {
        scale = { above = 0 },
      },
    },
    attention_ring = {
      inputs = { { "q", "b s g r d" }, { "k", "b s g d" }, { "v", "b s g d" }, { "qpos", "b s" }, { "kpos", "b s" } },
      outputs = { { "o", "b s g r d" }, { "lse", "b g r s" } },
      attrs = {
        scale = { above = 0 },
      },
    },
    gelu = {
      inputs = { { "x", "b s e.." } },
      outputs = { { "y", "b s e.." } },
    },
    swiglu = {
      inputs = { { "gate", "b s e.." }, { "up", "b s e.." } },
      outputs = { { "y", "b s e.." } },
    },
    softcap = {
      inputs = { { "x", "b s e.." } },
      outputs = { { "y", "b s e.." } },
      attrs = {
        cap = { above = 0 },
      },
    },
    dropout = {
      inputs = { { "x", "b s e.." }, { "sample", "b" }, { "pos", "b s" }, { "step", "" } },
      outputs = { { "y", "b s e.." } },
      attrs = {
        p = { min = 0, below = 1 },
        key = { whole = true },
      },
    },
    cross_entropy = {
      inputs = { { "logits", "b s v" }, { "targets", "b s" } },
      outputs = { { "loss", "" }, { "count", "" }, { "lse", "b s" } },
    },
    add = {
      inputs = { { "x", "e.." }, { "y", "e.." } },
      outputs = { { "z", "e.." } },
    },
    route_topk = {
      inputs = { { "logits", "b s e" }, { "sample", "b" } },
      outputs = { { "gate", "b s k=k" }, { "expert", "b s k" }, { "slot", "b s k" }, { "aux", "" } },
      attrs = {
        k = { whole = true, min = 1 },
        group = { whole = true, min = 1 },
        capacity = { whole = true, min = 1 },
        renormalise = { whole = true, min = 0, max = 1 },
        aux = { min = 0 },
      },
    },
    dispatch = {
      inputs = { { "x", "b s h" }, { "expert", "b s k" }, { "slot", "b s k" } },
      outputs = { { "y", "b n=s/group e=experts c=capacity h" } },
      attrs = {
        group = { whole = true, min = 1 },
        experts = { whole = true, min = 1 },
        capacity = { whole = true, min = 1 },
      },
    },
    combine = {
      inputs = { { "y", "b n=s/group e c h" }, { "gate", "b s k" }, { "expert", "b s k" }, { "slot", "b s k" } },
      outputs = { { "x", "b s h" } },
      attrs = {
        group = { whole = true, min = 1 },
      },
    },
    grouped_linear = {
      inputs = { { "x", "b n e c k.." }, { "w", "e o.. k.." } },
      outputs = { { "y", "b n e c o.." } },
    },
  },
}
