//! The secret half of a token appears nowhere: not in `Debug`, not in errors, not in traces.

use std::fmt::{Debug, Display};

use ringfence::entropy::Entropy;
use ringfence::{Guard, HoldError, Locks, PlainGuard};

use crate::rules::bench::{Bench, at_once, ms};
use crate::rules::log::Log;

/// The texts that were shown so far, and the secrets that must not be in them.
#[derive(Default)]
struct Shown {
    texts: Vec<String>,
    secrets: Vec<String>,
}

impl Shown {
    fn debug(&mut self, value: impl Debug) {
        self.texts.push(format!("{value:?}"));
        self.texts.push(format!("{value:#?}"));
    }

    fn error(&mut self, value: impl Debug + Display) {
        self.texts.push(value.to_string());
        self.debug(value);
    }

    fn keep_secret(&mut self, token: &ringfence_core::token::Token) {
        let (_, secret) = token.expose().split_once('.').unwrap();
        self.secrets.push(secret.to_owned());
    }
}

#[tokio::test]
async fn no_secret_is_ever_shown() {
    let (log, _listening) = Log::listen();
    let bench = Bench::new(3).await;
    let (one, other) = (bench.client().await, bench.client().await);
    let mut shown = Shown::default();
    let guard = at_once(one.mutex("x").ttl(ms(9000)).lock()).await.unwrap();
    show_a_lock(&mut shown, &bench, [&one, &other], &guard).await;
    let plain = show_a_plain_lock(&mut shown, &bench, [&one, &other]).await;
    show_losses(&mut shown, &bench, &one, guard).await;
    let receipt = at_once(one.mutex("r").lock()).await.unwrap().leave();
    shown.debug(at_once(other.mutex("r").release_receipt(&receipt)).await);
    shown.error(ringfence::receipt::Receipt::parse("secret.secret").unwrap_err());
    drop((one, other, plain));

    let lines = log.lines();
    for words in ["lock granted", "restoring the lock"] {
        let logged = lines.iter().any(|line| line.contains(words));
        assert!(logged, "`{words}` is in the log");
    }
    assert_eq!(shown.secrets.len(), 3);
    for secret in &shown.secrets {
        assert_eq!(secret.len(), 32);
        for text in shown.texts.iter().chain(&lines) {
            // Not even a large part of it.
            assert!(
                !text.contains(&secret[..12]) && !text.contains(&secret[20..]),
                "{text}"
            );
        }
    }
}

async fn show_a_lock(shown: &mut Shown, bench: &Bench, [one, other]: [&Locks; 2], guard: &Guard) {
    shown.keep_secret(guard.token());
    shown.error(guard.token());
    shown.debug(guard);
    shown.debug(guard.receipt());
    shown.debug(guard.votes());
    shown.debug((one, one.mutex("x"), one.plain_mutex("x"), &bench.nodes));
    shown.error(at_once(other.mutex("x").try_lock()).await.unwrap_err());
    shown.debug(at_once(other.inspect("x")).await.unwrap());
    shown.debug(at_once(other.nodes()).await);
    let mutex = one.mutex("x").wait(ms(100));
    shown.error(bench.drive(mutex.lock()).await.unwrap_err());
}

async fn show_a_plain_lock(
    shown: &mut Shown,
    bench: &Bench,
    [one, other]: [&Locks; 2],
) -> PlainGuard {
    let plain = at_once(one.plain_mutex("p").lock()).await.unwrap();
    let key = bench.keys("p")[0].clone().unwrap();
    shown.keep_secret(&ringfence_core::token::Token::parse(&key).unwrap());
    shown.debug(&plain);
    shown.error(at_once(other.mutex("p").try_lock()).await.unwrap_err());
    shown.debug(at_once(other.inspect("p")).await.unwrap());
    plain
}

/// A failed renewal, a restored node, a lost lock, and releases that find another state.
async fn show_losses(shown: &mut Shown, bench: &Bench, one: &Locks, guard: Guard) {
    bench.delete(0, "x", guard.token());
    bench.pass(ms(3000)).await;
    bench.break_first(2);
    bench.pass(ms(4000)).await;
    shown.error(bench.drive(guard.extend(ms(9000))).await.unwrap_err());
    shown.debug(one);
    bench.mend();
    (0..3).for_each(|node| bench.delete(node, "x", guard.token()));
    shown.error(at_once(guard.extend(ms(9000))).await.unwrap_err());
    shown.error(guard.check().unwrap_err());
    shown.error(at_once(guard.release()).await.unwrap_err());
    let held: Result<(), HoldError> = {
        let lock = one.mutex("h").renew(false);
        let hold = lock.hold(async |guard| {
            shown.keep_secret(guard.token());
            bench.time.step(ms(20_000));
            std::future::pending::<()>().await
        });
        bench.drive(hold).await
    };
    shown.error(held.unwrap_err());
}

#[tokio::test]
async fn a_builder_does_not_show_passwords() {
    let builder = Locks::builder().nodes("redis://user:hunter2@host:6379");
    assert!(!format!("{builder:?}").contains("hunter2"));
}

#[tokio::test]
async fn control_characters_in_names_and_labels_are_escaped_in_errors() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let lock = locks.mutex("x\u{1b}[2J").label("\u{1b}[31mred\n");
    let _guard = at_once(lock.lock()).await.unwrap();
    let error = at_once(locks.mutex("x\u{1b}[2J").try_lock())
        .await
        .unwrap_err();
    assert!(!error.to_string().contains('\u{1b}'), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("`x\\u{1b}[2J` is held by \\u{1b}[31mred\\n")
    );
}

#[tokio::test]
async fn tokens_are_predictable_only_if_the_builder_was_given_a_seed() {
    let tokens = async |entropy: Option<Entropy>| {
        let bench = Bench::new(3).await;
        let builder = bench.builder();
        let builder = match entropy {
            Some(entropy) => builder.entropy(entropy),
            None => builder,
        };
        let locks = builder.connect().await.unwrap();
        let guards = [locks.mutex("x").lock().await, locks.mutex("y").lock().await];
        guards.map(|guard| guard.unwrap().token().clone())
    };
    let seeded = tokens(Some(Entropy::seeded(7))).await;
    assert_ne!(seeded[0], seeded[1]);
    assert_eq!(tokens(Some(Entropy::seeded(7))).await, seeded);
    assert_ne!(tokens(Some(Entropy::seeded(8))).await, seeded);
    assert_ne!(tokens(None).await, tokens(None).await);
}
