//! The process that a client belongs to.
//!
//! A forked child gets copies of everything: of guards, whose drop would release the parent's lock;
//! of sockets and timers, whose drop would take them out of the epoll that it shares with its
//! parent; of mutexes that a thread held which the child does not have. So the copies do nothing.
//! Calls end with an error before they lock a mutex or write a log line, and what has a file
//! descriptor, a thread or a tokio runtime behind it is leaked instead of dropped.

use std::future::Future;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The process that made something. Asking which process runs is a system call, so the usual lock
/// asks once, and so does its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerProcess(u32);

impl OwnerProcess {
    /// The process that runs now.
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether this is the process that runs now, and not one that it was forked from.
    pub(crate) fn is_ours(self) -> bool {
        self == Self::current()
    }

    /// Runs `call` in this process. In a forked child it ends with `forked`, and a call that the
    /// fork interrupted is leaked: to drop it would undo it.
    pub(crate) fn call<F: Future>(self, call: F, forked: fn() -> F::Output) -> OwnCall<F> {
        OwnCall {
            process: self,
            call: Some(Box::pin(call)),
            polls: 0,
            forked,
        }
    }
}

impl Default for OwnerProcess {
    fn default() -> Self {
        Self::current()
    }
}

/// See [`OwnerProcess::call`].
pub(crate) struct OwnCall<F: Future> {
    process: OwnerProcess,
    /// `None` once it has ended.
    call: Option<Pin<Box<F>>>,
    polls: u32,
    forked: fn() -> F::Output,
}

impl<F: Future> OwnCall<F> {
    /// Most calls are polled twice: they send, and get the answer. No answer arrives in a child,
    /// so the second poll needs no check.
    fn needs_check(&mut self) -> bool {
        self.polls = self.polls.saturating_add(1);
        self.polls != 2
    }
}

impl<F: Future> Future for OwnCall<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.needs_check() && !self.process.is_ours() {
            mem::forget(self.call.take());
            return Poll::Ready((self.forked)());
        }
        let Some(call) = &mut self.call else {
            return Poll::Pending;
        };
        let polled = call.as_mut().poll(cx);
        if polled.is_ready() {
            self.call = None;
        }
        polled
    }
}

impl<F: Future> Drop for OwnCall<F> {
    fn drop(&mut self) {
        if self.call.is_some() && !self.process.is_ours() {
            mem::forget(self.call.take());
        }
    }
}

/// A value that only the process that made it drops. A forked child leaks its copy.
#[derive(Debug)]
pub(crate) struct ProcessBound<T> {
    process: OwnerProcess,
    /// `None` only while it is dropped.
    value: Option<T>,
}

impl<T> ProcessBound<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            process: OwnerProcess::current(),
            value: Some(value),
        }
    }

    /// Whether this is the process that made it.
    pub(crate) fn is_usable(&self) -> bool {
        self.process.is_ours()
    }
}

impl<T> Deref for ProcessBound<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("the value is there until it is dropped"),
        }
    }
}

impl<T> DerefMut for ProcessBound<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.value {
            Some(value) => value,
            None => unreachable!("the value is there until it is dropped"),
        }
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        if !self.process.is_ours() {
            mem::forget(self.value.take());
        }
    }
}

/// A background task of this process. A forked child that goes on with its copy of the tokio
/// runtime neither polls it (it would read the parent's replies) nor drops it.
pub(crate) fn own_task(
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    OwnTask(ProcessBound::new(Box::pin(task)))
}

struct OwnTask<F>(ProcessBound<Pin<Box<F>>>);

impl<F: Future<Output = ()>> Future for OwnTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.0.is_usable() {
            true => self.0.as_mut().poll(cx),
            false => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// A process that this one was forked from.
    const PARENT: OwnerProcess = OwnerProcess(0);

    /// Counts how often it is dropped.
    struct Counted<'a>(&'a Cell<u32>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_child_ends_the_calls_of_its_parent_with_an_error_and_leaks_them() {
        let drops = Cell::new(0);
        let counted = Counted(&drops);
        let call = async move {
            let _counted = counted;
            unreachable!("it is not polled")
        };
        let mut call = pin!(PARENT.call(call, || "forked"));
        assert_eq!(poll(call.as_mut()), Poll::Ready("forked"));
        assert_eq!(drops.get(), 0);
    }

    #[test]
    fn a_child_leaks_a_call_that_the_fork_interrupted() {
        let drops = Cell::new(0);
        let begun = |process: OwnerProcess| {
            let counted = Counted(&drops);
            let call = async move {
                let _counted = counted;
                pending::<&str>().await
            };
            let mut call = Box::pin(OwnerProcess::current().call(call, || "forked"));
            assert_eq!(poll(call.as_mut()), Poll::Pending);
            call.process = process;
            call
        };
        drop(begun(PARENT));
        assert_eq!(drops.get(), 0);
        // The second poll is not checked, and no answer arrives there.
        let mut call = begun(PARENT);
        assert_eq!(poll(call.as_mut()), Poll::Pending);
        assert_eq!(poll(call.as_mut()), Poll::Ready("forked"));
        drop(call);
        assert_eq!(drops.get(), 0);
        drop(begun(OwnerProcess::current()));
        assert_eq!(drops.get(), 1);
    }

    #[test]
    fn a_child_neither_polls_nor_drops_the_tasks_of_its_parent() {
        let (drops, polls) = (Cell::new(0), Cell::new(0));
        let task = |process| {
            let counted = Counted(&drops);
            let count = || polls.set(polls.get() + 1);
            let task = poll_fn(move |_| {
                let _counted = &counted;
                count();
                Poll::Pending
            });
            let mut bound = ProcessBound::new(Box::pin(task));
            bound.process = process;
            Box::pin(OwnTask(bound))
        };
        let mut of_parent = task(PARENT);
        assert_eq!(poll(of_parent.as_mut()), Poll::Pending);
        drop(of_parent);
        assert_eq!((drops.get(), polls.get()), (0, 0));
        let mut ours = task(OwnerProcess::current());
        assert_eq!(poll(ours.as_mut()), Poll::Pending);
        drop(ours);
        assert_eq!((drops.get(), polls.get()), (1, 1));
    }
}
