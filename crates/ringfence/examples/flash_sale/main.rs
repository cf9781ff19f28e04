//! A sale of 100 pieces, one per user, within certain hours; every user sends ten requests at once.
//! Three ways to sell: without protection, under a lock, and with one script on the server.
//!
//! ```text
//! cargo run -p ringfence --example flash_sale
//! ```
//!
//! It starts its own `redis-server`. The figures are of your machine: compare them with each other.

mod requests;
mod shop;

use std::error::Error;

use ringfence_testkit::{Flavor, Server};

use requests::{Crowd, Tally};
use shop::{Hours, Shop, Way};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const STOCK: usize = 100;
const USERS: usize = 150;
const REQUESTS_PER_USER: usize = 10;

#[tokio::main(flavor = "multi_thread")]
async fn main() -> Outcome {
    let server = Server::start(Flavor::Redis);
    let shop = Shop::connect(&server.url()).await?;

    // One user, ten requests that have all looked before the first of them buys.
    shop.open(STOCK, Hours::Now).await?;
    let greedy = Crowd {
        users: 1,
        requests_per_user: REQUESTS_PER_USER,
    };
    let bought = greedy.send(&shop, Way::Unprotected).await?.orders;
    show(
        bought > 1,
        &format!(
            "unprotected: one user with {REQUESTS_PER_USER} requests at once gets {bought} pieces"
        ),
    )?;

    for way in [Way::Locked, Way::Scripted] {
        for hours in [Hours::Later, Hours::Over] {
            shop.open(STOCK, hours).await?;
            let tally = greedy.send(&shop, way).await?;
            show(
                tally.orders == 0,
                &format!("{way}: {hours}, nothing is sold"),
            )?;
        }
        shop.open(STOCK, Hours::Now).await?;
        let crowd = Crowd {
            users: USERS,
            requests_per_user: REQUESTS_PER_USER,
        };
        let tally = crowd.send(&shop, way).await?;
        let (orders, buyers) = (shop.orders().await?, shop.buyers().await?);
        let stock = shop.stock().await?;
        show(
            orders == STOCK && buyers == STOCK && stock == 0 && tally.orders == STOCK,
            &format!("{way}: {orders} orders of {buyers} users, {stock} pieces left"),
        )?;
        report(way, &tally);
    }
    shop.close().await;
    Ok(())
}

/// Figures, for the reader only.
fn report(way: Way, tally: &Tally) {
    let seconds = tally.took.as_secs_f64();
    println!(
        "{way}: round trips for an order: {}; per second: {:.0} orders, {:.0} requests",
        tally.trips_per_order(),
        tally.orders as f64 / seconds,
        tally.requests as f64 / seconds,
    );
}

/// Prints what the program shows, if it is true.
fn show(is_true: bool, what: &str) -> Outcome {
    if !is_true {
        return Err(format!("this did not happen: {what}").into());
    }
    println!("{what}");
    Ok(())
}
