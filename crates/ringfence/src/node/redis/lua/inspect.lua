-- Inspect: who holds, as far as this node knows. Six values per claim: 1 if it is held, label, id and
-- remaining ms of the holder, its ballot, and the effective fence.
local views = {}
for i = 1, claims do
  local record = records[i]
  local label, id, left, _ = false, false, false, nil
  if values[i] then
    _, label, id, left = holder(i)
  end
  local n = #views
  views[n + 1] = values[i] and 1 or 0
  views[n + 2], views[n + 3], views[n + 4] = label, id, left
  views[n + 5] = record.owner and record.ballot or false
  views[n + 6] = record.fence
end
return reply('views', unpack(views))
