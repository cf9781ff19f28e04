-- One section of INFO; false if our user may not read it.
local function info(section)
  local text = redis.pcall('INFO', section)
  return type(text) == 'string' and text
end

