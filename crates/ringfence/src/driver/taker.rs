//! Which task took a lock, so that a task that waits for itself can be warned.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A task, or a thread where no task runs. Small, since every hold has one; two that are taken for the
/// same cost a needless warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taker(u32);

impl Taker {
    /// Whoever runs now.
    pub(crate) fn current() -> Self {
        let mut hasher = DefaultHasher::new();
        match tokio::task::try_id() {
            Some(task) => (true, task).hash(&mut hasher),
            None => (false, std::thread::current().id()).hash(&mut hasher),
        }
        // Never that of nobody.
        Self(hasher.finish() as u32 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_task_and_each_thread_outside_of_one_is_another() {
        let here = Taker::current();
        assert_eq!(here, Taker::current());
        assert_ne!(here, Taker::default());
        let task = tokio::spawn(async { Taker::current() });
        let other = tokio::spawn(async { Taker::current() });
        let (task, other) = (task.await.unwrap(), other.await.unwrap());
        let thread = std::thread::spawn(Taker::current).join().unwrap();
        let all = [here, task, other, thread];
        let same = all.iter().filter(|one| **one == here || **one == task);
        assert_eq!(same.count(), 2, "{all:?}");
    }

    /// A task keeps its identity on whichever thread it runs.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_is_the_same_on_every_thread() {
        let task = tokio::spawn(async {
            let before = Taker::current();
            for _ in 0..100 {
                tokio::task::yield_now().await;
                assert_eq!(Taker::current(), before);
            }
        });
        task.await.unwrap();
    }
}
