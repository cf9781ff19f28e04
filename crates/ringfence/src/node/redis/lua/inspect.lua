-- Inspect: who holds, as far as this node knows. Six values per claim.
local views = {}
for i = 1, claims do
  local holds = value(i) and true or false
  views[#views + 1] = holds and 1 or 0
  views[#views + 1] = holds and records[i].label or false
  views[#views + 1] = holds and public_id(i)
  views[#views + 1] = holds and for_ms(i)
  views[#views + 1] = records[i].ballot or false
  views[#views + 1] = effective_fence(i)
end
return reply('views', unpack(views))
