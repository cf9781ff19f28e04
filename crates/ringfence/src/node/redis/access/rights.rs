//! Finds out which rights our user has on a server, with few rights and without entries in the
//! server's ACL LOG.

use redis::{Cmd, Value};

use crate::node::{Purpose, Right, Rights};

use super::acl::{Arguments, CHANNELS, COMMANDS, KeyPatterns, born_rule};
use crate::node::redis::key::{BORN_KEY, WAKE_CHANNEL, side_keys};

/// Asks about commands without running any. Servers before 7.0 cannot be asked.
const SCRIPT: &str = include_str!("../scripts/rights.lua");

/// The command that runs the script. It only reads, but a user without `+eval_ro` may have `+eval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvalCommand {
    EvalRo,
    Eval,
}

/// The rights of a handshake on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// May run `CONFIG GET`.
    pub(crate) config: bool,
    /// May run a script that writes the birth record. Without this right a user may only look.
    pub(crate) join: bool,
}

impl Allowed {
    /// Unknown rights are tried.
    const UNKNOWN: Self = Self {
        config: true,
        join: true,
    };

    /// The question to the server.
    pub(crate) fn question() -> Cmd {
        let mut cmd = begin(EvalCommand::EvalRo);
        ask(&mut cmd, &["CONFIG", "GET", "appendfsync"]);
        ask(&mut cmd, &["EVAL", "return 1", "1", BORN_KEY]);
        cmd
    }

    /// Reads the answer.
    pub(crate) fn read(answer: Option<&Value>) -> Self {
        match answer.and_then(flags).as_deref() {
            Some(&[config, join]) => Self { config, join },
            _ => Self::UNKNOWN,
        }
    }
}

/// Asks whether our user may run `CLIENT TRACKING`.
pub(crate) fn tracking_question() -> Cmd {
    let mut cmd = begin(EvalCommand::EvalRo);
    ask(&mut cmd, &["CLIENT", "TRACKING", "ON"]);
    cmd
}

/// Whether the server answered [`tracking_question`] with no.
pub(crate) fn is_denied(answer: &Value) -> bool {
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
pub(crate) fn question(name: Option<&str>, eval: EvalCommand) -> Cmd {
    let channel = format!("{WAKE_CHANNEL}doctor");
    let mut cmd = begin(eval);
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

fn begin(eval: EvalCommand) -> Cmd {
    let mut cmd = redis::cmd(match eval {
        EvalCommand::EvalRo => "EVAL_RO",
        EvalCommand::Eval => "EVAL",
    });
    cmd.arg(SCRIPT).arg(0);
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
    fn answer(
        may: impl Fn(&super::super::acl::CommandRight) -> bool,
        name: Option<&str>,
    ) -> Vec<bool> {
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
        let watcher = |command: &super::super::acl::CommandRight| command.is_for(Purpose::Look);
        let mut answers = answer(watcher, name);
        answers[COMMANDS.len() + 1] = false;
        let rights = found(&answers, name).unwrap();
        assert_eq!(rules(&rights.lacking), ["%R~orders:*"]);
    }

    #[test]
    fn unknown_rights_are_tried() {
        let flags = |flags: &[i64]| Value::Array(flags.iter().map(|f| Value::Int(*f)).collect());
        let both = Allowed::UNKNOWN;
        for (answer, allowed) in [
            (None, both),
            (Some(Value::Nil), both),
            (Some(flags(&[1])), both),
            (
                Some(flags(&[0, 1])),
                Allowed {
                    config: false,
                    ..both
                },
            ),
            (
                Some(flags(&[0, 0])),
                Allowed {
                    config: false,
                    join: false,
                },
            ),
        ] {
            assert_eq!(Allowed::read(answer.as_ref()), allowed);
        }
    }
}
