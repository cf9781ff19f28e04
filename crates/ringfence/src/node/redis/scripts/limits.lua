-- An acquire that arrives later than its caller allowed is not executed: this may be a former master,
-- and the lease of a holder that the new master has carried on may have ended here.
if clock > not_after then
  return { clock, min_fence, 'late' }
end
