//! One thread computes rows for the next super-batch while another reads those of this one.
//! Run: `cargo run -p morphgl-embedding-cache --example alone-embedding-cache`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::mpsc::channel;
use std::thread;

use morphgl_embedding_cache::{EmbeddingCache, Error};
use morphgl_row_cache::NodeMap;

fn main() -> Result<(), Error> {
    let (n, super_batches) = (4, 5);
    let cache = EmbeddingCache::new(vec![1], 2 * n - 1);
    let (snapshots, received) = channel::<(u64, u64)>();
    thread::scope(|scope| {
        let cache = &cache;
        let computing = scope.spawn(move || {
            cache.choose(0, NodeMap::prefix(0))?;
            cache.publish(0, 0, vec![Vec::new()])?;
            for (super_batch, step) in received {
                // What is computed here is the step whose parameters it is computed with.
                cache.choose(super_batch + 1, NodeMap::prefix(10))?;
                cache.publish(super_batch + 1, step, vec![vec![step as f32; 10]])?;
            }
            Ok(())
        });
        let mut rows = Vec::new();
        for step in 0..super_batches * n {
            let super_batch = step / n;
            if step % n == 0 && snapshots.send((super_batch, step)).is_err() {
                break;
            }
            let nodes: &[u32] = if super_batch == 0 { &[] } else { &[3] };
            let version = cache.read(super_batch, step, nodes, &mut [&mut rows])?;
            println!("step {step}: rows {rows:?} of version {version}, {} steps old", step - version);
        }
        drop(snapshots);
        computing.join().expect("no panic")
    })
}
