//! Finds out which rights our user has on a server, with few rights and without entries in the
//! server's ACL LOG.

use redis::{Cmd, Value};

use crate::node::{Purpose, Right, Rights};

use super::denial::is_denial;
use super::{Arguments, CHANNELS, COMMANDS, KeyPatterns, born_rule};
use crate::node::redis::codec::side_keys;
use crate::node::redis::scripts::{BORN_KEY, SCRIPTS};
use crate::node::redis::wire::Allowed;
use crate::node::redis::wire::wake_listeners::WAKE_CHANNEL;

/// How the server is asked about commands, without running any of them. Servers before 7.0 cannot be
/// asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    /// `EVALSHA_RO`, which every user of the guide may run. It needs a script that is loaded.
    ByHash,
    /// `EVAL`, which a user who may only look must not run.
    InFull,
}

/// The rights of a handshake on a connection.
impl Allowed {
    /// Unknown rights are tried.
    const UNKNOWN: Self = Self {
        config: true,
        join: true,
        send_scripts: true,
    };
    /// Of a user who may run the scripts that are loaded, and no others.
    const BY_HASH_ONLY: Self = Self {
        config: false,
        join: false,
        send_scripts: false,
    };

    /// The question to the server.
    pub(crate) fn question(asking: Asking) -> Cmd {
        let mut cmd = begin(asking);
        ask(&mut cmd, &["CONFIG", "GET", "appendfsync"]);
        ask(&mut cmd, &["EVAL", "return 1", "1", BORN_KEY]);
        ask(&mut cmd, &["EVAL_RO", "return 1", "0"]);
        cmd
    }

    /// Reads the answer; `None` if the server could not answer the question.
    pub(crate) fn read(answer: Option<&Value>) -> Option<Self> {
        match answer.and_then(flags).as_deref() {
            Some(&[config, join, send_scripts]) => Some(Self {
                config,
                join,
                send_scripts,
            }),
            _ => None,
        }
    }

    /// The rights, if the answer to the question by hash is `by_hash`, which cannot be read, and the
    /// answer to the question in full is `in_full`.
    pub(crate) fn read_again(by_hash: Option<&Value>, in_full: Option<&Value>) -> Self {
        Self::read(in_full).unwrap_or(match has_no_scripts(by_hash) && is_denied(in_full) {
            true => Self::BY_HASH_ONLY,
            false => Self::UNKNOWN,
        })
    }
}

/// Whether the server has not loaded the script with which it is asked.
pub(crate) fn has_no_scripts(answer: Option<&Value>) -> bool {
    matches!(answer, Some(Value::ServerError(error)) if error.code() == "NOSCRIPT")
}

/// Whether the server denies our user the question itself.
pub(crate) fn is_denied(answer: Option<&Value>) -> bool {
    matches!(answer, Some(Value::ServerError(error))
        if is_denial(error.code(), error.details().unwrap_or_default()))
}

/// Asks whether our user may run `CLIENT TRACKING`.
pub(crate) fn tracking_question() -> Cmd {
    let mut cmd = begin(Asking::ByHash);
    ask(&mut cmd, &["CLIENT", "TRACKING", "ON"]);
    cmd
}

/// Whether the server answered [`tracking_question`] with no.
pub(crate) fn is_tracking_denied(answer: &Value) -> bool {
    flags(answer).as_deref() == Some(&[false])
}

/// The rights that an examination of a server found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRights {
    pub(crate) rights: Rights,
    /// Whether `CONFIG GET` is allowed.
    pub(crate) config: bool,
    /// Whether `SCAN` is allowed.
    pub(crate) scan: bool,
}

/// Asks which rights our user has, also on the keys of the lock `name`, if given.
pub(crate) fn question(name: Option<&str>, asking: Asking) -> Cmd {
    let channel = format!("{WAKE_CHANNEL}doctor");
    let mut cmd = begin(asking);
    for command in &COMMANDS {
        let (subject, rest) = match command.arguments {
            Arguments::Read(rest) | Arguments::Write(rest) => (Some(BORN_KEY), rest),
            Arguments::Channel(rest) => (Some(channel.as_str()), rest),
            Arguments::Plain(rest) => (None, rest),
        };
        let words = command.rule.trim_start_matches('+').split('|');
        let words: Vec<&str> = words.chain(subject).chain(rest.iter().copied()).collect();
        ask(&mut cmd, &words);
    }
    ask(&mut cmd, &["CONFIG", "GET", "appendfsync"]);
    for key in name.into_iter().flat_map(keys) {
        ask(&mut cmd, &["GET", &key]);
        ask(&mut cmd, &["SET", &key, "v"]);
    }
    cmd
}

fn begin(asking: Asking) -> Cmd {
    let script = &SCRIPTS.rights;
    let (command, script) = match asking {
        Asking::ByHash => ("EVALSHA_RO", &script.hash),
        Asking::InFull => ("EVAL", &script.text),
    };
    let mut cmd = redis::cmd(command);
    cmd.arg(script).arg(0);
    cmd
}

fn ask(cmd: &mut Cmd, words: &[&str]) {
    cmd.arg(words.len()).arg(words);
}

/// The lock's own key, then its side keys.
fn keys(name: &str) -> Vec<String> {
    let mut keys = vec![name.to_owned()];
    keys.extend(side_keys(name));
    keys
}

/// The rights of the user, by the answer to [`question`]; `None` if the answer is malformed.
pub(crate) fn read(answer: &Value, name: Option<&str>) -> Option<FoundRights> {
    let answers = flags(answer)?;
    let (commands, rest) = answers.split_at_checked(COMMANDS.len())?;
    let (&config, keys_asked) = rest.split_first()?;
    let count = name.map_or(0, |name| keys(name).len());
    if keys_asked.len() != 2 * count {
        return None;
    }
    let mut keys_asked = keys_asked.chunks(2);
    let asked = RightsAnswer {
        commands,
        plain: keys_asked.next().map(|key| [key[0], key[1]]),
        side: keys_asked.fold([true, true], |all, key| {
            [all[0] && key[0], all[1] && key[1]]
        }),
        name,
    };
    let purpose = asked.purpose();
    Some(FoundRights {
        rights: Rights {
            purpose,
            lacking: asked.lacking(purpose),
            lacking_to_lock: asked.lacking(Purpose::Lock),
        },
        config,
        scan: asked.may("+scan"),
    })
}

fn flags(answer: &Value) -> Option<Vec<bool>> {
    let Value::Array(items) = answer else {
        return None;
    };
    Some(items.iter().map(|item| *item == Value::Int(1)).collect())
}

/// The parsed answer.
struct RightsAnswer<'a> {
    /// In the order of [`COMMANDS`].
    commands: &'a [bool],
    /// Whether the lock's own key may be read, and written; `None` without a name.
    plain: Option<[bool; 2]>,
    /// The same for all its side keys.
    side: [bool; 2],
    name: Option<&'a str>,
}

impl RightsAnswer<'_> {
    fn may(&self, rule: &str) -> bool {
        let mut asked = COMMANDS.iter().zip(self.commands);
        asked.any(|(command, may)| command.rule == rule && *may)
    }

    /// The purpose of the user. A user with some of the rights that change a lock is meant to take
    /// locks, even if it lacks others. A user with none of them is not.
    fn purpose(&self) -> Purpose {
        let fit = |purpose| {
            let mut asked = COMMANDS.iter().zip(self.commands);
            asked.all(|(command, may)| *may || !command.needed_by.contains(&purpose))
        };
        match () {
            () if self.may("+evalsha") => Purpose::Lock,
            () if fit(Purpose::Init) => Purpose::Init,
            () if fit(Purpose::Look) && !self.may("+set") => Purpose::Look,
            () => Purpose::Lock,
        }
    }

    /// The rights that a user for `purpose` lacks.
    fn lacking(&self, purpose: Purpose) -> Vec<Right> {
        let asked = || {
            let asked = COMMANDS.iter().zip(self.commands);
            asked.filter(|(command, _)| command.is_for(purpose))
        };
        let none = |of: fn(&Arguments) -> bool| {
            let mut of_these = asked()
                .filter(|(command, _)| of(&command.arguments))
                .peekable();
            of_these.peek().is_some() && of_these.all(|(_, may)| !may)
        };
        let right = |rule: String, essential| Right { rule, essential };
        let mut lacking = Vec::new();
        // A user who may run no command on a key probably lacks the key, not the commands.
        if none(|arguments| matches!(arguments, Arguments::Read(_)))
            || none(|arguments| matches!(arguments, Arguments::Write(_)))
        {
            lacking.push(right(born_rule(purpose), true));
        }
        if none(|arguments| matches!(arguments, Arguments::Channel(_))) {
            lacking.push(right(CHANNELS.to_owned(), true));
        }
        // Without the right to the command, the answer says nothing about the key.
        let reads = self.may("+get");
        let writes = self.may("+set") || self.purpose() != Purpose::Lock;
        let is_denied = |[read, write]: [bool; 2]| match purpose {
            Purpose::Lock => reads && !read || writes && !write || !(reads || writes),
            Purpose::Look | Purpose::Init => !read,
        };
        if let (Some(name), Some(plain)) = (self.name, self.plain) {
            let patterns = KeyPatterns::of_name(name).rules(purpose);
            if let Some((own, beside)) = patterns.split_last() {
                let beside = beside.iter().filter(|_| is_denied(self.side));
                let own = std::iter::once(own).filter(|_| is_denied(plain));
                lacking.extend(beside.chain(own).map(|rule| right(rule.clone(), true)));
            }
        }
        let denied = asked().filter(|(_, may)| !**may);
        lacking.extend(denied.map(|(command, _)| {
            let essential = command.needed_by.contains(&purpose);
            right(command.rule.to_owned(), essential)
        }));
        lacking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer for a user with the rights `may`, and all access to the keys of `name`.
    fn answer(may: impl Fn(&super::super::CommandRight) -> bool, name: Option<&str>) -> Vec<bool> {
        let mut answers: Vec<bool> = COMMANDS.iter().map(may).collect();
        answers.push(false);
        answers.extend(vec![true; 2 * name.map_or(0, |name| keys(name).len())]);
        answers
    }

    fn found(answers: &[bool], name: Option<&str>) -> Option<Rights> {
        let answers = answers.iter().map(|may| Value::Int(i64::from(*may)));
        Some(read(&Value::Array(answers.collect()), name)?.rights)
    }

    fn rules(rights: &[Right]) -> Vec<&str> {
        rights.iter().map(|right| right.rule.as_str()).collect()
    }

    #[test]
    fn what_is_denied_is_lacking() {
        let all = answer(|_| true, None);
        let rights = found(&all, None).unwrap();
        assert_eq!(rights.lacking, []);
        assert_eq!(rights.purpose, Purpose::Lock);
        let poor = answer(|command| command.rule != "+set", None);
        let rights = found(&poor, None).unwrap();
        assert_eq!(rules(&rights.lacking), ["+set"]);
        assert_eq!(found(&all[1..], None), None);
    }

    #[test]
    fn each_user_is_known_by_its_rights_and_lacks_none() {
        for purpose in [Purpose::Lock, Purpose::Look, Purpose::Init] {
            let answers = answer(|command| command.is_for(purpose), None);
            let rights = found(&answers, None).unwrap();
            assert_eq!(rights.purpose, purpose);
            assert_eq!(rights.lacking, [], "{purpose:?}");
            assert_eq!(rights.lacking_to_lock.is_empty(), purpose == Purpose::Lock);
        }
    }

    #[test]
    fn a_user_without_access_to_our_keys_lacks_the_key() {
        let is_on_key = |arguments| matches!(arguments, Arguments::Read(_) | Arguments::Write(_));
        let keyless = answer(|command| !is_on_key(command.arguments), None);
        let rights = found(&keyless, None).unwrap();
        let lacking = rules(&rights.lacking);
        assert_eq!(lacking[0], "~ringfence:born");
        assert!(lacking.contains(&"+zadd"), "{lacking:?}");
        assert!(!lacking.contains(&"+info"), "{lacking:?}");
    }

    #[test]
    fn a_lock_outside_the_user_s_keys_is_named_with_its_prefix() {
        let name = Some("orders:1");
        for (denied, expected) in [
            (0, vec!["~orders:*"]),
            (1, vec!["~orders:*"]),
            (5, vec!["~ringfence:{orders:*"]),
        ] {
            let mut answers = answer(|_| true, name);
            answers[COMMANDS.len() + 1 + denied] = false;
            let rights = found(&answers, name).unwrap();
            assert_eq!(rules(&rights.lacking), expected);
        }
        let watcher = |command: &super::super::CommandRight| command.is_for(Purpose::Look);
        let mut answers = answer(watcher, name);
        answers[COMMANDS.len() + 1] = false;
        let rights = found(&answers, name).unwrap();
        assert_eq!(rules(&rights.lacking), ["%R~orders:*"]);
    }

    fn error(line: &str) -> Value {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
    }

    #[test]
    fn unknown_rights_are_tried() {
        let flags = |flags: &[i64]| Value::Array(flags.iter().map(|f| Value::Int(*f)).collect());
        for answer in [None, Some(Value::Nil), Some(flags(&[1, 1]))] {
            assert_eq!(Allowed::read(answer.as_ref()), None);
            let again = Allowed::read_again(None, answer.as_ref());
            assert_eq!(again, Allowed::UNKNOWN);
        }
        for (answer, config, join, send_scripts) in [
            (flags(&[0, 1, 1]), false, true, true),
            (flags(&[1, 0, 0]), true, false, false),
        ] {
            let allowed = Allowed {
                config,
                join,
                send_scripts,
            };
            assert_eq!(Allowed::read(Some(&answer)), Some(allowed));
            let missing = error("NOSCRIPT No matching script.");
            let again = Allowed::read_again(Some(&missing), Some(&answer));
            assert_eq!(again, allowed);
        }
    }

    /// A server that has not loaded the script must not make a user who may lock look only.
    #[test]
    fn only_a_user_who_may_run_loaded_scripts_and_no_others_is_known_without_the_script() {
        let missing = error("NOSCRIPT No matching script.");
        let denied = error("NOPERM this user has no permissions to run the 'eval' command");
        let old = error("ERR unknown command 'EVALSHA_RO'");
        let read = |by_hash, in_full| Allowed::read_again(Some(by_hash), Some(in_full));
        assert_eq!(read(&missing, &denied), Allowed::BY_HASH_ONLY);
        for (by_hash, in_full) in [(&denied, &denied), (&missing, &old), (&old, &old)] {
            assert_eq!(read(by_hash, in_full), Allowed::UNKNOWN);
        }
    }
}
