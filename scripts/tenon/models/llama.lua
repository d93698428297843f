-- Llama: the decoder with SwiGLU in every layer.
local decoder = require "tenon.models.decoder"

return function(given)
  return decoder.model("llama", decoder.options("t.models.llama", given, {}), { decoder.dense })
end
