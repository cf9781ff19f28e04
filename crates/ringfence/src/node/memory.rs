//! The in-memory node: the ledger over a map, with a clock that a test can step.
