//! Executes the steps of a history: operations, and what other programs do to the keys.

use super::*;

impl Bench {
    pub(super) fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask(ask) => self.compare(ask)?,
            Step::Together(asks) => self.compare_together(asks)?,
            Step::Foreign {
                name,
                value,
                ttl_ms,
            } => self.set(NAMES[*name], *value, *ttl_ms),
            Step::Delete { name } => self.connection.del(NAMES[*name]).unwrap(),
            Step::Lapse { name, ms } => {
                let key = record_key(NAMES[*name]);
                let _: bool = self.connection.pexpire(key, *ms as i64).unwrap();
            }
            Step::Age { name, ticket, ms } => self.age(NAMES[*name], *ticket, *ms),
            Step::Fade { name, ms } => self.fade(NAMES[*name], *ms),
            Step::Wait { ms } => {
                let until = self.clock_us() + ms * 1000;
                self.wait_until(until);
            }
            Step::Birth { left_ms } => self.birth(*left_ms),
        }
        Ok(())
    }

    /// Another program sets the key, to the token of `holder` or to a value of its own.
    fn set(&mut self, name: &str, holder: Option<u8>, ttl_ms: Option<u64>) {
        let value = match holder {
            Some(holder) => token(holder).expose().to_owned(),
            None => "another library's value".to_owned(),
        };
        let mut cmd = redis::cmd("SET");
        cmd.arg(name).arg(value);
        if let Some(ttl_ms) = ttl_ms {
            cmd.arg("PX").arg(ttl_ms);
        }
        cmd.exec(&mut self.connection).unwrap();
    }

    /// Makes a ticket end in `ms` milliseconds, as if it was refreshed long ago.
    pub(crate) fn age(&mut self, name: &str, ticket: usize, ms: u64) {
        let [_, _, lease] = line_keys(name);
        let ticket = self.ticket((ticket, false));
        let member = format!("{:020}{}\n{}", ticket.since_us, ticket.id, ticket.label);
        let until_ms = self.clock_us() / 1000 + ms;
        redis::cmd("ZADD")
            .arg((lease, "XX", until_ms, member))
            .exec(&mut self.connection)
            .unwrap();
    }

    /// Makes the wait queue expire `ms` milliseconds after its last ticket.
    fn fade(&mut self, name: &str, ms: u64) {
        let tickets = self.stored(name).queue.entries;
        let Some(last) = tickets.iter().map(|ticket| ticket.until_ms).max() else {
            return;
        };
        let [mark, order, lease] = line_keys(name);
        let mut pipe = redis::pipe();
        let kept = format!("{}{}", last + ms, self.flags(&mark));
        pipe.cmd("SET").arg((&mark, kept));
        for key in [mark, order, lease] {
            pipe.cmd("PEXPIREAT").arg((key, last + ms));
        }
        let _: () = pipe.atomic().query(&mut self.connection).unwrap();
    }

    /// The letters at the end of a queue's mark.
    fn flags(&mut self, mark: &str) -> String {
        let text: String = self.connection.get(mark).unwrap();
        text.trim_start_matches(|letter: char| letter.is_ascii_digit())
            .to_owned()
    }
}
