//! The users: all requests of all users at once.

use std::sync::Arc;
use std::time::Duration;

use ringfence::clock::Clock;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::shop::{Answer, Shop, Way};

pub(crate) struct Crowd {
    pub(crate) users: usize,
    pub(crate) requests_per_user: usize,
}

/// What became of the requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: usize,
    pub(crate) orders: usize,
    pub(crate) took: Duration,
    order_trips: usize,
}

impl Crowd {
    pub(crate) async fn send(&self, shop: &Shop, way: Way) -> Outcome<Tally> {
        // Without protection the requests of a user meet between look and purchase. In earnest they
        // meet there now and then.
        let met = Arc::new(Barrier::new(self.requests_per_user));
        let begun = Clock::System.now();
        let mut requests = JoinSet::new();
        for user in 0..self.users {
            for _ in 0..self.requests_per_user {
                let (shop, met) = (shop.clone(), Arc::clone(&met));
                let user = format!("user-{user}");
                requests.spawn(async move { shop.buy(&user, way, &met).await });
            }
        }
        let mut tally = Tally::default();
        while let Some(answer) = requests.join_next().await {
            tally.add(&answer??);
        }
        tally.took = Clock::System.now().since(begun);
        Ok(tally)
    }
}

impl Tally {
    fn add(&mut self, answer: &Answer) {
        self.requests += 1;
        if answer.bought {
            self.orders += 1;
            self.order_trips += answer.trips;
        }
    }

    pub(crate) fn trips_per_order(&self) -> usize {
        self.order_trips / self.orders.max(1)
    }
}
