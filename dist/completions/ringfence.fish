complete --keep-order --exclusive --command ringfence --arguments "(RINGFENCE_COMPLETE=fish ringfence -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
