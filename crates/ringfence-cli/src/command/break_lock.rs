//! `ringfence break`: an operator ends the hold of another client.

use ringfence::admin::{BreakRequest, Inspection, LockState};
use serde_json::json;

use super::status::{lease, unknown, who};
use super::{CommandContext, mark};
use crate::args::BreakArgs;
use crate::exit::Exit;
use crate::report::{CliFailure, ask, one_line};

pub(super) async fn break_lock(
    context: &CommandContext,
    args: BreakArgs,
) -> Result<Exit, CliFailure> {
    // Before anything is broken: a mark that cannot be raised must not be noticed afterwards.
    let target = mark::MarkTarget::parse(&args)?;
    let (seen, hold) = find(context, &args).await?;
    let what = match args.slot {
        Some(slot) => format!("slot {slot} of `{}`", one_line(&args.name)),
        None => format!("`{}`", one_line(&args.name)),
    };
    if seen.state == LockState::Free && seen.reported.is_empty() {
        return Err(CliFailure::usage(format!("{what} is free")));
    }
    if !args.yes {
        confirm(&what, &seen).await?;
    }
    let mut hold = hold.by(&operator());
    if let Some(reason) = &args.reason {
        hold = hold.reason(reason);
    }
    let broken = hold.run().await?;
    let marked = match &target {
        Some(target) => Some(target.raise(broken.fence).await?),
        None => None,
    };
    let mut text = format!("broke {what}: its fence is {} now\n", broken.fence);
    text += match (seen.kept, &marked) {
        (true, _) => "no client held it: it was kept from others after a release",
        (false, Some(_)) => {
            "the old holder may still be running; it learns of this at its next renewal"
        }
        (false, None) => {
            "the old holder may still be running and writing: it learns of this at its next\n\
             renewal, if it is alive. --raise-mark lets a fenced resource refuse it"
        }
    };
    if let Some(marked) = &marked {
        text += "\n";
        text += marked;
    }
    let value = json!({
        "name": args.name,
        "slot": args.slot,
        "fence": broken.fence,
        "holders": broken.holders,
        "mark": marked,
    });
    context.report.result(&text, &value)?;
    Ok(Exit::Success)
}

/// The holder to break, as a majority sees it now, and the break that removes it and no later one.
async fn find(
    context: &CommandContext,
    args: &BreakArgs,
) -> Result<(Inspection, BreakRequest), CliFailure> {
    let (locks, name) = (&context.locks, &args.name);
    let mut hold = locks.break_lock(name);
    let all = locks.inspect_all(name).await?;
    let seen = match args.slot {
        None => all.lock,
        Some(slot) => {
            let semaphore = all.semaphore.ok_or_else(|| no_slot(slot))?;
            let permits = u32::try_from(semaphore.slots.len()).unwrap_or(u32::MAX);
            hold = hold.slot(slot, permits);
            let mut slots = semaphore.slots.into_iter();
            slots.nth(slot as usize).ok_or_else(|| no_slot(slot))?
        }
    };
    if let Some(id) = &args.reader {
        let reader = seen
            .holders
            .iter()
            .find(|reader| reader.id.as_ref() == Some(id));
        let Some(fence) = reader.and_then(|reader| reader.fence) else {
            return Err(CliFailure::usage(format!(
                "no reader `{}` shares the lock; `ringfence status --json` shows the ids",
                one_line(id)
            )));
        };
        return Ok((seen, hold.reader(id, fence)));
    }
    let fence = seen
        .fence
        .or_else(|| seen.holders.iter().filter_map(|one| one.fence).max());
    Ok(match fence {
        Some(fence) => (seen, hold.seen(fence)),
        // Another library's holder, or a different one on each node.
        None => (seen, hold),
    })
}

fn no_slot(slot: u32) -> CliFailure {
    CliFailure::usage(format!("there is no slot {slot}"))
}

/// Who holds the lock, for the question.
fn holder(seen: &Inspection) -> String {
    match seen.holders.as_slice() {
        [] if seen.is_held() => "held by another client".to_owned(),
        [] if seen.state == LockState::Unknown => unknown(seen),
        [] => "held by no majority".to_owned(),
        [one] => {
            let lease = lease(one.remaining, seen.kept);
            let verb = if seen.kept { "kept after" } else { "held by" };
            format!("{verb} {}, {lease}", who(one))
        }
        [first, others @ ..] => format!("held by {} and {} more", who(first), others.len()),
    }
}

/// Asks the person at the terminal. Without one, `--yes` is needed.
async fn confirm(what: &str, seen: &Inspection) -> Result<(), CliFailure> {
    let holder = holder(seen);
    let unasked = format!(
        "{what} is {}; use --yes to break it without a question",
        one_line(&holder)
    );
    let question = format!(
        "{what} is {}.\nBreak it only if its holder is dead: it is not stopped. Break it? [y/N]",
        one_line(&holder)
    );
    ask(&question, &unasked, "nothing was broken").await
}

/// The person who runs the command, for the audit list: user and host. The user is the owner of this
/// process. Any user can set a variable, so what it says is only added.
fn operator() -> String {
    let uid = nix::unistd::getuid();
    let found = nix::unistd::User::from_uid(uid).ok().flatten();
    let user = found.map_or_else(|| format!("uid {uid}"), |user| user.name);
    let host = rustix::system::uname();
    let said = ["SUDO_USER", "USER"].into_iter().find_map(|key| {
        let value = std::env::var(key).ok()?;
        (!value.is_empty() && value != user).then(|| format!(" ({key}={value})"))
    });
    let host = host.nodename().to_string_lossy();
    format!("{user}@{host}{}", said.unwrap_or_default())
}
