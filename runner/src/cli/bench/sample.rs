//! `morphgl bench sample`: workers that sample, one mini-batch each at a time, and gather nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use clap::Parser;
use morphgl_registry::{BatchingWorker, MiniBatch};
use serde_json::json;

use super::figures::{Report, fields, median};
use super::source::{self, Counts, MadeArgs, Numbered, Source};
use super::{Timed, go_on, stop, timed};
use crate::Stop;
use crate::cli::show::Show;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench sample
  morphgl bench sample products --threads 4 --batches 24
  morphgl bench sample products --expansion new        as PyG expands
  morphgl bench sample products --within               all threads on one mini-batch at a time")]
pub(super) struct Args {
    #[command(flatten)]
    made: MadeArgs,
    /// One worker that spreads each mini-batch over all threads, instead of a worker a thread
    #[arg(help_heading = "Measurement", long)]
    within: bool,
}

/// A worker and the mini-batch whose memory it uses again.
struct Hand {
    worker: Box<dyn BatchingWorker>,
    recycled: Option<MiniBatch>,
}

pub(super) fn run(args: &Args, show: Show) -> Result<Report> {
    let (dataset, config) = args.made.open(show)?;
    let source = Source::new(&dataset, &config, false)?;
    let (workers, threads) = if args.within { (1, source.threads) } else { (source.threads, 1) };
    let made = (0..workers).map(|_| source.batching.worker(threads));
    let mut hands: Vec<Hand> =
        made.map(|worker| worker.map(|worker| Hand { worker, recycled: None })).collect::<Result<_, _>>()?;
    let (num_batches, stop) = (source.num_batches(), stop()?);
    let count = args.made.amount.batches.unwrap_or(num_batches);
    let repeats = args.made.amount.repeats;
    // Of epochs that are not measured, so that nothing measured was made before; every worker makes one at least.
    let warm_up = if args.made.amount.warm_up == 0 { 0 } else { args.made.amount.warm_up.max(workers as u32) };
    sample(&mut hands, Numbered::of_repeat(num_batches, repeats, count), warm_up, &stop)?;
    let Timed { runs, load } = timed(0..repeats, show, &stop, |repeat| {
        sample(&mut hands, Numbered::of_repeat(num_batches, repeat, count), count, &stop)
    })?;
    let rates = |of: fn(&Counts) -> u64| runs.iter().map(|(s, c)| of(c) as f64 / s).collect::<Vec<f64>>();
    let (edges, nodes) = (rates(|c| c.edges), rates(|c| c.nodes));
    let counts = runs[0].1;
    let mode = if args.within { "one worker, threads inside" } else { "a worker a thread" };
    let mut document = fields(json!({
        "mode": mode, "batching": source.route.batching.to_string(), "batches": counts.batches,
        "edges_per_s": median(&edges),
        "edges_per_batch": counts.mean(counts.edges), "input_nodes_per_batch": counts.mean(counts.nodes),
    }));
    document.extend(fields(source::settings(&config.sampler)));
    Ok(Report {
        what: "sample",
        data: dataset.name.clone(),
        threads: source.threads,
        unit: "batches/s",
        all: rates(|c| c.batches),
        more: vec![("edges/s", edges), ("input nodes/s", nodes)],
        with: format!("{mode}, {}", source::in_words(&config.sampler)),
        load,
        fields: document,
    })
}

/// Samples mini-batches `0..count`, each by the hand that is free; a single hand works on the calling thread.
fn sample(hands: &mut [Hand], numbered: Numbered, count: u32, stop: &Stop) -> Result<Counts> {
    let next = AtomicU32::new(0);
    let work = |hand: &mut Hand| -> Result<Counts> {
        let mut counts = Counts::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(counts);
            }
            go_on(stop)?;
            let (batch, _) = hand.worker.prepare(numbered.id(number), hand.recycled.take())?.wait()?;
            counts.add(&batch)?;
            hand.recycled = Some(batch);
        }
    };
    if let [hand] = hands {
        return work(hand);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = hands.iter_mut().map(|hand| scope.spawn(|| work(hand))).collect();
        let mut sum = Counts::default();
        for thread in threads {
            sum += thread.join().map_err(|_| anyhow!("a batching worker panicked, as said above"))??;
        }
        Ok(sum)
    })
}
