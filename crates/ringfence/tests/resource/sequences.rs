//! The script and the statements compared with the rule, in random sequences.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ringfence::resource::{Marks, Refused};
use ringfence_core::message::Ballot;
use ringfence_testkit::{Flavor, Server};

use crate::resource::stores::{InRedis, Store, Stores};

#[derive(Debug, Clone, Copy)]
enum Step {
    Read(u64),
    Write(u64),
}

/// Few fences, so that they collide; some of them where a double would begin to round.
fn any_step() -> impl Strategy<Value = Step> {
    let fence = prop_oneof![4 => 0..6u64, 1 => Ballot::MAX.get() - 2..=Ballot::MAX.get()];
    (any::<bool>(), fence).prop_map(|(reads, fence)| {
        if reads {
            Step::Read(fence)
        } else {
            Step::Write(fence)
        }
    })
}

/// What a resource must answer by the rule.
struct Expected {
    marks: Marks,
    number: i64,
}

impl Expected {
    fn step(&mut self, step: Step, number: i64) -> Result<i64, Refused> {
        match step {
            Step::Read(fence) => self.marks = self.marks.admit_read(fence)?,
            Step::Write(fence) => {
                self.marks = self.marks.admit_write(fence)?;
                self.number = number;
            }
        }
        Ok(self.number)
    }
}

fn follows_the_rule(store: &mut dyn Store, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut expected = Expected {
        marks: Marks::default(),
        number: 100,
    };
    for (number, &step) in (0..).zip(steps) {
        let answer = match step {
            Step::Read(fence) => store.read(fence),
            Step::Write(fence) => store.write(fence, number).map(|()| number),
        };
        prop_assert_eq!(answer, expected.step(step, number), "{:?}", step);
        prop_assert_eq!(store.marks(), expected.marks, "{:?}", step);
    }
    Ok(())
}

fn run(cases: u32, test: impl Fn(String, Vec<Step>) -> Result<(), TestCaseError>) {
    let serial = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let tried = runner.run(&vec(any_step(), 1..25), |steps| {
        // Shrinking repeats a case, and every run needs a new resource.
        serial.set(serial.get() + 1);
        test(format!("resource-{}", serial.get()), steps)
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn every_store_follows_the_rule() {
    let stores = Stores::start();
    run(40, |name, steps| {
        for (store, mut opened) in stores.addresses().open(&name) {
            let followed = follows_the_rule(&mut *opened, &steps);
            followed.map_err(|error| TestCaseError::fail(format!("{store}: {error}")))?;
        }
        Ok(())
    });
}

#[test]
fn the_script_follows_the_rule_on_redis_and_valkey() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        run(200, |name, steps| {
            follows_the_rule(&mut InRedis::open(&server.url(), &name), &steps)
        });
    }
}
