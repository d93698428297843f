while true do pcall(error, "x") end
