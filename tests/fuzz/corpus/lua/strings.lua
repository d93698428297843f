local s = ("%5.2f|%s"):format(1.5, {}) for w in s:gmatch("%a+") do s = s .. w end return t
