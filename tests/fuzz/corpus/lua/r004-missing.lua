local t = require "tenon"
return t.run {}
