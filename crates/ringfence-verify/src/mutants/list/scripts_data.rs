//! The script for fenced keys on the server with the data.

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

    /// A reader raises the read mark.
    LuaReadMarkNotRaised:
        edit(ADMIT, "",
            "read = math.max(read, number)",
            "");

    /// A writer raises the write mark.
    LuaWriteMarkNotRaised:
        edit(ADMIT, "",
            "write = number",
            "");

    /// A resource whose marks expired still refuses the old fences.
    LuaGoneMarksAdmit:
        edit(ADMIT, "",
            "floor = time[1] * 1000000 + time[2] - keep * 1000",
            "");
}
