//! The finding about what our user may do on a server.

use ringfence::admin::{Purpose, Right, Rights, ServerExamination};
use ringfence::node::TroubleKind;

use super::finding::{Check, Finding, message};

const CHECK: Check = Check("rights");

/// The rights of our user on `server`, and its rights to the lock `name` if one was given.
pub(super) fn rights(server: &ServerExamination, node: &str, name: Option<&str>) -> Finding {
    let user = server.user.escape_debug();
    match &server.rights {
        Ok(rights) => known(rights, &user.to_string(), name),
        Err(trouble) if trouble.kind == TroubleKind::Denied => CHECK.problem(
            message(trouble, node),
            format!("ACL SETUSER {user} +evalsha_ro, then run doctor again"),
        ),
        Err(trouble) => CHECK.warning(
            format!(
                "did not report the user's rights: {}",
                message(trouble, node)
            ),
            "compare them with the ACL line in docs/operations.md",
        ),
    }
}

fn known(rights: &Rights, user: &str, name: Option<&str>) -> Finding {
    let lacking = rules(&rights.lacking, |_| true);
    let essential = rules(&rights.lacking, |right| right.essential);
    let grant = format!("ACL SETUSER {user} {lacking}");
    if !essential.is_empty() {
        return CHECK.problem(format!("denies user {user} {essential}"), grant);
    }
    if !lacking.is_empty() {
        let says = format!("denies user {user} {lacking}: locks work, but less well");
        return CHECK.warning(says, grant);
    }
    let may = match rights.purpose {
        Purpose::Lock => return all(user, name),
        Purpose::Init => "run `status`, `doctor` and `init`",
        _ => "run `status` and `doctor`",
    };
    let mut rules = rules(&rights.lacking_to_lock, |_| true);
    if name.is_none() {
        rules = format!("~ringfence:{{PREFIX* ~PREFIX* {rules}");
    }
    CHECK.note(
        format!("lets user {user} {may}, but not take locks"),
        format!("if this user must take locks: ACL SETUSER {user} {rules}"),
    )
}

fn all(user: &str, name: Option<&str>) -> Finding {
    let says = match name {
        Some(name) => format!("gives user {user} all rights to `{}`", name.escape_debug()),
        None => {
            format!("gives user {user} the rights for locks (`doctor NAME` checks a name's keys)")
        }
    };
    CHECK.ok(says)
}

/// The ACL rules of those `rights` that `which` selects.
fn rules(rights: &[Right], which: impl Fn(&Right) -> bool) -> String {
    let rights = rights.iter().filter(|right| which(right));
    let rules: Vec<&str> = rights.map(|right| right.rule.as_str()).collect();
    rules.join(" ")
}
