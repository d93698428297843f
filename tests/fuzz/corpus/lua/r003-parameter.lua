--! lr=x
local t = require "tenon"
local p = t.params { lr = 0.1 }
return t.run {}
