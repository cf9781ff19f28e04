//! The rights of our user on a server: which rights each purpose needs, and the line of an ACL file
//! that grants exactly these. This is the only list: the doctor checks it, and a test compares the
//! guide with it. `rights.rs` finds out which of them the user has, `denial.rs` what a server reports
//! when one is missing.

pub(crate) mod denial;
pub(crate) mod rights;

use crate::name::{hash_tag, side_key_tag};
use crate::node::Purpose;

use crate::node::redis::scripts::BORN_KEY;

/// The channels for wakes: one for each client, under a random name.
pub(crate) const CHANNELS: &str = "&ringfence:wake:*";

/// The arguments with which the server is asked whether our user may run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arguments {
    /// A key that it only reads, then these words.
    Read(&'static [&'static str]),
    /// A key that it writes, then these words.
    Write(&'static [&'static str]),
    /// A channel of ours, then these words.
    Channel(&'static [&'static str]),
    /// These words; no key.
    Plain(&'static [&'static str]),
}

/// One command that the library sends, or that one of its scripts runs.
pub(crate) struct CommandRight {
    /// The rule that allows it.
    pub(crate) rule: &'static str,
    pub(crate) arguments: Arguments,
    /// The purposes that need it.
    pub(crate) needed_by: &'static [Purpose],
    /// The purposes that are slower without it, or learn less.
    pub(crate) useful_to: &'static [Purpose],
}

impl CommandRight {
    /// Whether the ACL line of a user for `purpose` has it.
    pub(crate) fn is_for(&self, purpose: Purpose) -> bool {
        self.needed_by.contains(&purpose) || self.useful_to.contains(&purpose)
    }
}

const ALL: &[Purpose] = &[Purpose::Lock, Purpose::Look, Purpose::Init];
const LOCK: &[Purpose] = &[Purpose::Lock];
const LOOK: &[Purpose] = &[Purpose::Look];
const INIT: &[Purpose] = &[Purpose::Init];
const LOCK_AND_LOOK: &[Purpose] = &[Purpose::Lock, Purpose::Look];
const LOCK_AND_INIT: &[Purpose] = &[Purpose::Lock, Purpose::Init];

const fn needed(
    rule: &'static str,
    arguments: Arguments,
    needed_by: &'static [Purpose],
) -> CommandRight {
    CommandRight {
        rule,
        arguments,
        needed_by,
        useful_to: &[],
    }
}

const fn useful(
    rule: &'static str,
    arguments: Arguments,
    useful_to: &'static [Purpose],
) -> CommandRight {
    CommandRight {
        rule,
        arguments,
        needed_by: &[],
        useful_to,
    }
}

/// Every command, in the order of the ACL lines.
pub(crate) const COMMANDS: [CommandRight; 29] = [
    useful("+hello", Arguments::Plain(&["3"]), ALL),
    useful("+info", Arguments::Plain(&["server"]), ALL),
    needed("+time", Arguments::Plain(&[]), ALL),
    needed("+eval", Arguments::Plain(&["return 1", "0"]), LOCK_AND_INIT),
    needed("+evalsha", Arguments::Plain(&["0", "0"]), LOCK),
    // Not `+eval_ro`: a user who may send scripts can stop the server with a loop.
    CommandRight {
        rule: "+evalsha_ro",
        arguments: Arguments::Plain(&["0", "0"]),
        needed_by: LOOK,
        useful_to: LOCK_AND_INIT,
    },
    useful("+script|load", Arguments::Plain(&["return 1"]), LOCK),
    needed("+get", Arguments::Read(&[]), ALL),
    needed("+mget", Arguments::Read(&[]), ALL),
    needed("+set", Arguments::Write(&["v"]), LOCK_AND_INIT),
    needed("+del", Arguments::Write(&[]), LOCK),
    CommandRight {
        rule: "+exists",
        arguments: Arguments::Read(&[]),
        needed_by: LOCK,
        useful_to: LOOK,
    },
    needed("+pttl", Arguments::Read(&[]), ALL),
    needed("+pexpire", Arguments::Write(&["1"]), LOCK),
    CommandRight {
        rule: "+scan",
        arguments: Arguments::Plain(&["0"]),
        needed_by: INIT,
        // To list the locks. It shows the names of all keys.
        useful_to: LOOK,
    },
    needed("+zadd", Arguments::Write(&["1", "m"]), LOCK),
    needed("+zrem", Arguments::Write(&["m"]), LOCK),
    needed("+zrank", Arguments::Read(&["m"]), LOCK),
    needed("+zcard", Arguments::Read(&[]), LOCK),
    needed("+zrange", Arguments::Read(&["0", "0"]), LOCK_AND_LOOK),
    needed("+zrangebyscore", Arguments::Read(&["0", "0"]), LOCK),
    needed("+zscore", Arguments::Read(&["m"]), LOCK_AND_LOOK),
    needed("+zlexcount", Arguments::Read(&["-", "+"]), LOCK),
    needed("+zcount", Arguments::Read(&["0", "0"]), LOCK_AND_LOOK),
    needed("+hget", Arguments::Read(&["f"]), LOCK_AND_LOOK),
    needed("+hset", Arguments::Write(&["f", "v"]), LOCK),
    needed("+hdel", Arguments::Write(&["f"]), LOCK),
    needed("+publish", Arguments::Channel(&["m"]), LOCK),
    useful("+subscribe", Arguments::Channel(&[]), LOCK),
];

/// The line of an ACL file for a user with the rights for `purpose` and no others, on locks whose
/// names begin with `prefix` and have no hash tag. A user for [`Purpose::Init`] reads all names.
pub fn acl_line(purpose: Purpose, user: &str, password: &str, prefix: &str) -> String {
    let rules = rules(purpose, &KeyPatterns::of_prefix(prefix));
    format!("user {user} on >{password} {rules}")
}

/// The rules of a user for `purpose` on keys that match `names`.
pub(crate) fn rules(purpose: Purpose, names: &KeyPatterns) -> String {
    let mut rules = key_rules(purpose, names);
    rules.push("resetchannels".to_owned());
    if purpose == Purpose::Lock {
        rules.push(CHANNELS.to_owned());
    }
    rules.push("-@all".to_owned());
    let commands = COMMANDS.iter().filter(|command| command.is_for(purpose));
    rules.extend(commands.map(|command| command.rule.to_owned()));
    rules.join(" ")
}

fn key_rules(purpose: Purpose, names: &KeyPatterns) -> Vec<String> {
    match purpose {
        // Its search reads the locks of all teams.
        Purpose::Init => vec![born_rule(purpose), "%R~*".to_owned()],
        Purpose::Lock | Purpose::Look => {
            let mut rules = vec![born_rule(purpose)];
            rules.extend(names.rules(purpose));
            rules
        }
    }
}

/// The rule for the node's birth record.
pub(crate) fn born_rule(purpose: Purpose) -> String {
    format!("{}{BORN_KEY}", access(purpose))
}

/// The kind of access to the keys of locks for `purpose`.
fn access(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Look => "%R~",
        Purpose::Lock | Purpose::Init => "~",
    }
}

/// The patterns for the keys of some locks, as they follow `~` in ACL rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPatterns {
    /// For the locks' own keys.
    pub(crate) plain: String,
    /// For the side keys: records, wait queues, readers, slots and latches.
    pub(crate) side: Vec<String>,
}

impl KeyPatterns {
    /// For the names that begin with `prefix` and have no hash tag. In their side keys the whole
    /// name is the hash tag.
    pub(crate) fn of_prefix(prefix: &str) -> Self {
        let prefix = escaped(prefix);
        Self {
            plain: format!("{prefix}*"),
            side: vec![format!("ringfence:{{{prefix}*")],
        }
    }

    /// For the lock `name`, and for others with the same prefix if it has one: the part up to its
    /// first `:` or `/`.
    pub(crate) fn of_name(name: &str) -> Self {
        if let Some(tag) = hash_tag(name) {
            let (tag, name) = (escaped(tag), escaped(name));
            if name.starts_with('{') {
                return Self {
                    plain: format!("{{{tag}}}*"),
                    side: vec![format!("ringfence:{{{tag}}}:*")],
                };
            }
            return Self {
                side: vec![format!("ringfence:{{{tag}}}:*:{name}")],
                plain: name,
            };
        }
        if name.contains('}') {
            let (tag, name) = (escaped(&side_key_tag(name)), escaped(name));
            return Self {
                side: vec![format!("ringfence:{{{tag}}}:*:{name}")],
                plain: name,
            };
        }
        match name.find([':', '/']) {
            Some(end) => Self::of_prefix(&name[..=end]),
            None => Self {
                plain: escaped(name),
                side: vec![format!("ringfence:{{{}}}:*", escaped(name))],
            },
        }
    }

    /// The rules of a user for `purpose`.
    pub(crate) fn rules(&self, purpose: Purpose) -> Vec<String> {
        let side = self.side.iter().chain([&self.plain]);
        side.map(|pattern| format!("{}{pattern}", access(purpose)))
            .collect()
    }
}

/// A pattern that matches `text`: characters with a meaning in patterns are escaped, and `?`
/// replaces those that an ACL rule cannot contain.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '*' | '?' | '[' | ']' | '\\' => pattern.extend(['\\', c]),
            // One `?` for each byte.
            _ if c.is_whitespace() || c.is_control() => {
                pattern.extend(std::iter::repeat_n('?', c.len_utf8()));
            }
            _ => pattern.push(c),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::Name;
    use crate::node::redis::codec::side_keys;

    /// Whether the server's glob `pattern` matches `text`, for the parts of globs that we use.
    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| matches(rest, &text[at..])),
            ([b'?', rest @ ..], [_, left @ ..]) => matches(rest, left),
            ([b'\\', c, rest @ ..], [d, left @ ..]) => c == d && matches(rest, left),
            ([c, rest @ ..], [d, left @ ..]) => c == d && matches(rest, left),
            (_, []) => false,
        }
    }

    /// Every key of the lock, the semaphore and the latch `name`, except the plain one.
    fn keys_beside(name: &str) -> Vec<String> {
        let given = Name::new("", name).unwrap();
        let own = [
            given.admission(),
            given.slot(0),
            given.slot(41),
            given.latch(),
        ];
        let mut keys: Vec<String> = side_keys(name).collect();
        for key in own.iter().map(Name::as_str) {
            keys.push(key.to_owned());
            keys.extend(side_keys(key));
        }
        keys
    }

    #[track_caller]
    fn covers(patterns: &KeyPatterns, name: &str) {
        let fits = |pattern: &str, key: &str| matches(pattern.as_bytes(), key.as_bytes());
        assert!(fits(&patterns.plain, name), "{name:?}: {patterns:?}");
        for key in keys_beside(name) {
            let found = patterns.side.iter().any(|pattern| fits(pattern, &key));
            assert!(found, "{key:?}: {patterns:?}");
        }
    }

    proptest! {
        #[test]
        fn the_rules_for_a_name_fit_all_its_keys(name in "[{}:ab*\\[ \n\\\\]{1,9}|\\PC{1,12}") {
            covers(&KeyPatterns::of_name(&name), &name);
        }

        #[test]
        fn the_rules_for_a_prefix_fit_all_keys_of_its_names(
            prefix in "[:ab*/]{1,4}",
            rest in "[{:ab*?é]{0,6}",
        ) {
            covers(&KeyPatterns::of_prefix(&prefix), &format!("{prefix}{rest}"));
        }

        /// For all names that begin otherwise.
        #[test]
        fn the_rules_for_a_prefix_fit_no_key_of_another(name in "[{:o]?[{}:orders]{0,12}") {
            prop_assume!(!name.is_empty() && !name.starts_with("o:") && !name.contains("{o:"));
            let patterns = KeyPatterns::of_prefix("o:");
            let all = [&patterns.plain, &patterns.side[0]];
            // The tag of a name without a hash tag is the name without its closing braces.
            prop_assume!(!name.replace('}', "").starts_with("o:"));
            for key in keys_beside(&name).into_iter().chain([name.clone()]) {
                for pattern in all {
                    let fits = matches(pattern.as_bytes(), key.as_bytes());
                    prop_assert!(!fits, "{} {}", key, pattern);
                }
            }
        }
    }

    fn patterns(name: &str) -> String {
        KeyPatterns::of_name(name).rules(Purpose::Lock).join(" ")
    }

    #[test]
    fn a_name_is_granted_with_its_prefix() {
        for (name, rules) in [
            ("orders:42", "~ringfence:{orders:* ~orders:*"),
            ("orders/a:b", "~ringfence:{orders/* ~orders/*"),
            ("nightly", "~ringfence:{nightly}:* ~nightly"),
            ("{orders}:1", "~ringfence:{orders}:* ~{orders}*"),
            ("a:{b}:c", "~ringfence:{b}:*:a:{b}:c ~a:{b}:c"),
            ("a}b", "~ringfence:{ab}:*:a}b ~a}b"),
            ("}", "~ringfence:{-}:*:} ~}"),
            ("a b*[c", "~ringfence:{a?b\\*\\[c}:* ~a?b\\*\\[c"),
        ] {
            assert_eq!(patterns(name), rules, "{name}");
        }
    }

    #[test]
    fn a_user_who_may_only_look_cannot_write() {
        let line = acl_line(Purpose::Look, "w", "P", "a:");
        let rules: Vec<&str> = line.split(' ').collect();
        assert!(!rules.iter().any(|rule| rule.starts_with('~')), "{line}");
        assert!(!rules.iter().any(|rule| rule.starts_with('&')), "{line}");
        for command in COMMANDS
            .iter()
            .filter(|c| matches!(c.arguments, Arguments::Write(_)))
        {
            assert!(!rules.contains(&command.rule), "{line}");
        }
    }

    /// A script of its own may be an endless loop, and a report of `CLIENT TRACKING` may be sent to
    /// another client.
    #[test]
    fn a_user_who_may_only_look_cannot_send_scripts_or_reports() {
        let line = acl_line(Purpose::Look, "w", "P", "a:");
        for rule in ["+eval", "+eval_ro", "+script|load", "+client|tracking"] {
            assert!(!line.split(' ').any(|one| one == rule), "{line}");
        }
    }
}
