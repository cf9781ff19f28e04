//! The script for fenced keys, where the data is.

use super::{Mutant, edit};

const ADMIT: &str = "crates/ringfence/src/resource/lua/admit.lua";

mutants! {
    /// A fence below the mark of the data is refused.
    LuaMarksNotCompared:
        edit(ADMIT, "",
            "if number < mark then",
            "if false then");

    /// A writer needs a fence that is not below the read mark.
    LuaReadMarkIgnored:
        edit(ADMIT, "",
            "math.max(write, floor, access == 'write' and read or 0)",
            "math.max(write, floor)");

    /// A reader raises its mark.
    LuaReadMarkNotRaised:
        edit(ADMIT, "",
            "read = math.max(read, number)",
            "");

    /// A writer raises its mark.
    LuaWriteMarkNotRaised:
        edit(ADMIT, "",
            "write = number",
            "");

    /// Marks that went still refuse what they would have.
    LuaGoneMarksAdmit:
        edit(ADMIT, "",
            "floor = time[1] * 1000000 + time[2] - keep * 1000",
            "");
}
