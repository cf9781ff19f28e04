//! The rights that our ACL user needs on a server: the one list of them, and a way to ask which are
//! lacking that works for the user who has no others.

use redis::Cmd;

use crate::node::Right;

use super::key::{WAKE_CHANNEL, record_key};

/// Asks about commands without running any. Only servers from 7.0 on can be asked.
const SCRIPT: &str = include_str!("lua/rights.lua");

/// Our own keys.
const KEYS: &str = "~ringfence:*";
/// Our own channels.
const CHANNELS: &str = "&ringfence:wake:*";

/// What a command is asked about with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// A key of ours, and these words behind it.
    Key(&'static [&'static str]),
    /// A channel of ours, and these words behind it.
    Channel(&'static [&'static str]),
    /// No key.
    Nothing(&'static [&'static str]),
}

/// Every command that a client or its scripts call: the rule that grants it, what it is asked about
/// with, and whether there are no locks without it.
const COMMANDS: [(&str, On, bool); 29] = [
    ("+info", On::Nothing(&["server"]), true),
    ("+config|get", On::Nothing(&["appendfsync"]), false),
    ("+time", On::Nothing(&[]), true),
    ("+eval", On::Nothing(&["return 1", "0"]), true),
    ("+evalsha", On::Nothing(&["0", "0"]), true),
    ("+script|load", On::Nothing(&["return 1"]), false),
    ("+get", On::Key(&[]), true),
    ("+mget", On::Key(&[]), true),
    ("+set", On::Key(&["v"]), true),
    ("+del", On::Key(&[]), true),
    ("+exists", On::Key(&[]), true),
    ("+pttl", On::Key(&[]), true),
    ("+pexpire", On::Key(&["1"]), true),
    ("+scan", On::Nothing(&["0"]), false),
    ("+hello", On::Nothing(&["3"]), false),
    ("+zadd", On::Key(&["1", "m"]), true),
    ("+zrem", On::Key(&["m"]), true),
    ("+zrank", On::Key(&["m"]), true),
    ("+zcard", On::Key(&[]), true),
    ("+zrange", On::Key(&["0", "0"]), true),
    ("+zrangebyscore", On::Key(&["0", "0"]), true),
    ("+zscore", On::Key(&["m"]), true),
    ("+zlexcount", On::Key(&["-", "+"]), true),
    ("+zcount", On::Key(&["0", "0"]), true),
    ("+hget", On::Key(&["f"]), true),
    ("+hset", On::Key(&["f", "v"]), true),
    ("+hdel", On::Key(&["f"]), true),
    ("+publish", On::Channel(&["m"]), true),
    ("+subscribe", On::Channel(&[]), false),
];

/// The least rights that `user` needs for locks whose names match `names`, as a line of an ACL file.
pub fn acl_line(user: &str, password: &str, names: &str) -> String {
    let commands: Vec<&str> = COMMANDS.iter().map(|(rule, ..)| *rule).collect();
    format!(
        "user {user} on >{password} {KEYS} ~{names} resetchannels {CHANNELS} -@all {}",
        commands.join(" ")
    )
}

/// Asks which of the rights our user has; about the key of the lock `name` too, if there is one.
pub(super) fn question(name: Option<&str>) -> Cmd {
    let key = record_key("doctor");
    let channel = format!("{WAKE_CHANNEL}doctor");
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(SCRIPT).arg(0);
    for (rule, on, _) in COMMANDS {
        let command = rule.trim_start_matches('+').split('|');
        let (subject, rest) = match on {
            On::Key(rest) => (Some(&key), rest),
            On::Channel(rest) => (Some(&channel), rest),
            On::Nothing(rest) => (None, rest),
        };
        let words: Vec<&str> = command
            .chain(subject.map(String::as_str))
            .chain(rest.iter().copied())
            .collect();
        cmd.arg(words.len()).arg(words);
    }
    if let Some(name) = name {
        cmd.arg(3).arg("SET").arg(name).arg("v");
    }
    cmd
}

/// The rights that are lacking, by the answers to [`question`]; `None` if they are no such answers.
pub(super) fn lacking(answers: &[bool], name: Option<&str>) -> Option<Vec<Right>> {
    if answers.len() != COMMANDS.len() + usize::from(name.is_some()) {
        return None;
    }
    let asked = || COMMANDS.iter().zip(answers);
    let none = |of: fn(&On) -> bool| asked().all(|((_, on, _), may)| !of(on) || !may);
    let right = |rule: &str, essential| Right {
        rule: rule.to_owned(),
        essential,
    };
    let mut lacking = Vec::new();
    // Whoever may run no command on our keys may well lack the keys and not the commands.
    if none(|on| matches!(on, On::Key(_))) {
        lacking.push(right(KEYS, true));
    }
    if none(|on| matches!(on, On::Channel(_))) {
        lacking.push(right(CHANNELS, true));
    }
    let denied = asked().filter(|(_, may)| !**may);
    lacking.extend(denied.map(|((rule, _, essential), _)| right(rule, *essential)));
    if let (Some(name), Some(false)) = (name, answers.get(COMMANDS.len())) {
        lacking.push(right(&format!("~{}", name.escape_debug()), true));
    }
    Some(lacking)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(answers: &[bool], name: Option<&str>) -> Vec<String> {
        let lacking = lacking(answers, name).unwrap();
        lacking.into_iter().map(|right| right.rule).collect()
    }

    #[test]
    fn what_is_denied_is_lacking() {
        let mut answers = [true; COMMANDS.len()];
        assert!(rules(&answers, None).is_empty());
        answers[8] = false;
        assert_eq!(rules(&answers, None), ["+set"]);
        assert_eq!(lacking(&answers[1..], None), None);
    }

    #[test]
    fn whoever_may_touch_none_of_our_keys_lacks_them() {
        let keyless = COMMANDS.map(|(_, on, _)| !matches!(on, On::Key(_)));
        let lacking = rules(&keyless, None);
        assert_eq!(lacking[0], KEYS);
        assert!(lacking.contains(&"+zadd".to_owned()), "{lacking:?}");
        assert!(!lacking.contains(&"+info".to_owned()), "{lacking:?}");
    }

    #[test]
    fn a_lock_outside_the_users_keys_is_named() {
        let answers = [&[true; COMMANDS.len()][..], &[false]].concat();
        assert_eq!(rules(&answers, Some("orders:1")), ["~orders:1"]);
    }
}
