-- table.sort for recipes: a stable merge sort, because Lua's own picks its pivots by the clock and so orders
-- equal elements differently from run to run.
local function merge(list, buffer, low, middle, high, less)
  local left, right = low, middle + 1
  for at = low, high do
    local from_right = left > middle or (right <= high and less(list[right], list[left]))
    if from_right then
      buffer[at], right = list[right], right + 1
    else
      buffer[at], left = list[left], left + 1
    end
  end
  for at = low, high do list[at] = buffer[at] end
end

local function sort_range(list, buffer, low, high, less)
  if low >= high then return end
  local middle = (low + high) // 2
  sort_range(list, buffer, low, middle, less)
  sort_range(list, buffer, middle + 1, high, less)
  merge(list, buffer, low, middle, high, less)
end

return function(list, less)
  sort_range(list, {}, 1, #list, less or function(a, b) return a < b end)
end
