//! Error messages about rights that a server denies our user: they name the node, the user, the
//! right and the rule that grants it.

use redis::ServerError;

use crate::message::Request;
use crate::node::{Purpose, Trouble, TroubleKind};

use super::{COMMANDS, KeyPatterns, born_rule};
use crate::node::redis::report::Reporter;
use crate::node::redis::scripts::BORN_KEY;

/// Parts of the errors of servers for a script that may run but contains a command that may not.
const FORBIDDEN_IN_SCRIPT: [&str; 2] = ["ACL failure in script", "The user executing the script"];

/// The right that databases other than the first need.
const SELECT: &str = "+select";

/// The most names whose rules are listed.
const NAMED_MAX: usize = 8;

impl Reporter {
    /// Trouble with a right that the user lacks, with the rule that grants it, if the server's text
    /// shows which it is.
    pub(crate) fn denied(&self, code: &str, details: &str, request: Option<&Request>) -> Trouble {
        let quoted = self.quote(&format!("{code} {details}"));
        let user = self.user.escape_debug();
        let what = match denied_command(details) {
            Some(command) => format!(
                "denies user `{user}` the command `{command}` ({quoted}); grant it with ACL SETUSER \
                 {user} +{command}"
            ),
            None if details.contains("key") => {
                let (keys, rules) = self.keys_of(request);
                format!(
                    "denies user `{user}` {keys} ({quoted}); grant them with ACL SETUSER {user} \
                     {rules}"
                )
            }
            None => format!(
                "denies user `{user}` a right ({quoted}); `ringfence doctor NAME` shows which, with the \
                 ACL SETUSER that grants it"
            ),
        };
        self.trouble(TroubleKind::Denied, what)
    }

    /// A description of the keys of `request`, and the rules that grant access to them.
    fn keys_of(&self, request: Option<&Request>) -> (String, String) {
        let names = request
            .into_iter()
            .flat_map(|request| request.claims.iter());
        let names: Vec<&str> = names.map(|claim| claim.name.given()).collect();
        let mut rules = Vec::new();
        for rule in names.iter().take(NAMED_MAX).flat_map(|name| {
            let patterns = KeyPatterns::of_name(name);
            patterns.rules(Purpose::Lock)
        }) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        match names.first() {
            None => (format!("the key `{BORN_KEY}`"), born_rule(Purpose::Lock)),
            Some(name) if names.iter().all(|other| other == name) => (
                format!("the keys of `{}`", name.escape_debug()),
                rules.join(" "),
            ),
            Some(name) => (
                format!("the keys of `{}` or of another", name.escape_debug()),
                rules.join(" "),
            ),
        }
    }

    /// Trouble with a command that is known to be denied.
    pub(crate) fn denied_command(&self, command: &str) -> Trouble {
        let what = format!(
            "denies user `{}` the command `{command}`",
            self.user.escape_debug()
        );
        self.trouble(TroubleKind::Denied, what)
    }

    /// Trouble with a `request` that a user who may only look cannot carry out.
    pub(crate) fn may_only_look(&self, request: &Request) -> Trouble {
        let name = request
            .claims
            .first()
            .map_or("", |claim| claim.name.given());
        let (user, name) = (self.user.escape_debug(), name.escape_debug());
        let what = format!(
            "lets user `{user}` only look: it may not run scripts that write (`+eval` and \
             `{}`); use a user who may lock `{name}`, or grant what `ringfence doctor {name}` names",
            born_rule(Purpose::Lock)
        );
        self.trouble(TroubleKind::Denied, what)
    }

    /// Trouble with a node without a birth record of its present run, for a user who may only look.
    pub(crate) fn unmet(&self) -> Trouble {
        let what = format!(
            "has no birth record since it was started, and user `{}` may only look: connect a client \
             that may lock first",
            self.user.escape_debug()
        );
        self.trouble(TroubleKind::Denied, what)
    }

    /// Trouble with a server that lacks a script which our user may run only if it is loaded.
    pub(crate) fn unloaded(&self) -> Trouble {
        let what = format!(
            "has not loaded the scripts of this version of ringfence since it was started, and user \
             `{}` may not send any (`+eval`): connect a client of this version that may lock first",
            self.user.escape_debug()
        );
        self.trouble(TroubleKind::Other, what)
    }

    /// Trouble with the server's error reply to `init`.
    pub(crate) fn init_error(&self, error: &ServerError) -> Trouble {
        let trouble = self.server_error(error);
        match trouble.kind {
            TroubleKind::Denied => {
                let hint = "; `init` searches the locks of all, so it has a user of its own: see \
                            docs/operations.md";
                Trouble::new(trouble.kind, format!("{trouble}{hint}"))
            }
            _ => trouble,
        }
    }
}

/// Whether an error says that the user lacks a right.
pub(crate) fn is_denial(code: &str, details: &str) -> bool {
    let in_script = || FORBIDDEN_IN_SCRIPT.iter().any(|w| details.contains(w));
    code == "NOPERM" || in_script()
}

/// The command that the user may not run, if the error names it: `'script|load' command`. Only a
/// command that we use: no server may make us recommend any other right.
fn denied_command(details: &str) -> Option<&str> {
    let (_, rest) = details.split_once('\'')?;
    let (command, rest) = rest.split_once('\'')?;
    let rule = format!("+{command}");
    let is_used = rule == SELECT || COMMANDS.iter().any(|command| command.rule == rule);
    (is_used && rest.starts_with(" command")).then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble_of(line: &str) -> Trouble {
        let reporter = Reporter::new("h:6379", Some("orders"), None);
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap() {
            redis::Value::ServerError(error) => reporter.server_error(&error),
            other => panic!("{other:?}"),
        }
    }

    /// With the texts of Redis 7.0, of later versions, and of Valkey.
    #[test]
    fn a_denial_names_user_right_and_rule() {
        for (line, words) in [
            (
                "NOPERM this user has no permissions to run the 'script|load' command",
                "the command `script|load` ",
            ),
            (
                "NOPERM this user has no permissions to run the 'flushall' command",
                "`ringfence doctor NAME` shows which",
            ),
            (
                "ERR ACL failure in script: User orders has no permissions to run the 'zadd' command \
                 script: on @user_script:1.",
                "ACL SETUSER orders +zadd",
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                "ACL SETUSER orders ~ringfence:born",
            ),
            (
                "NOPERM No permissions to access a key",
                "ACL SETUSER orders ~ringfence:born",
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 0a",
                "`ringfence doctor NAME` shows which",
            ),
            (
                "NOPERM No permissions to access a channel",
                "`ringfence doctor NAME` shows which",
            ),
            // Never recommend a rule that a server made up.
            (
                "NOPERM no permissions to run the 'x +@all' command",
                "denies user `orders` a right",
            ),
        ] {
            let trouble = trouble_of(line);
            assert_eq!(trouble.kind, TroubleKind::Denied, "{line}");
            assert!(trouble.detail.contains(words), "no `{words}` in {trouble}");
            assert!(
                trouble.detail.starts_with("h:6379 denies user `orders` "),
                "{trouble}"
            );
        }
    }
}
