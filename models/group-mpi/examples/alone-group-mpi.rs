//! Adds up a value of each rank: `mpirun -n 2 target/debug/examples/alone-group-mpi`.
#![allow(clippy::print_stdout, reason = "an example")]

use std::time::Duration;

use morphgl_group::Exchange;
use morphgl_group_mpi::MpiExchange;

fn main() -> morphgl_group::Result<()> {
    let mut exchange = MpiExchange::start(Duration::from_secs(60))?;
    let mut values = [1.0, exchange.rank() as f32];
    exchange.all_reduce(&mut values)?;
    println!("rank {} of {}: {values:?}", exchange.rank(), exchange.size());
    exchange.end(0);
    Ok(())
}
