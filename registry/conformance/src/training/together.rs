//! Inference of several processes, here threads.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use morphgl_registry::{Error, GatherRows, Result};

use super::{Run, accumulate, step};

/// One of several peers, with a channel from and to each other one: who ends early is missed by the others at once.
#[derive(Debug)]
struct Peer {
    rank: usize,
    to: Vec<Sender<Vec<f32>>>,
    from: Vec<Receiver<Vec<f32>>>,
}

impl Peer {
    fn group(size: usize) -> Vec<Self> {
        let mut peers: Vec<Self> = (0..size).map(|rank| Self { rank, to: Vec::new(), from: Vec::new() }).collect();
        for to in 0..size {
            for from in 0..size {
                let (sender, receiver) = channel();
                peers[from].to.push(sender);
                peers[to].from.push(receiver);
            }
        }
        peers
    }
}

impl GatherRows for Peer {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn gather(&mut self, rows: &mut [f32], parts: &[Range<usize>]) -> Result<()> {
        let gone = || Error::failed("a peer", "it has ended");
        let whole = parts.iter().flat_map(Range::clone).eq(0..rows.len());
        assert!(whole && parts.len() == self.size(), "parts of {} elements: {parts:?}", rows.len());
        for to in &self.to {
            to.send(rows[parts[self.rank].clone()].to_vec()).map_err(|_| gone())?;
        }
        for (from, part) in self.from.iter().zip(parts) {
            rows[part.clone()].copy_from_slice(&from.recv().map_err(|_| gone())?);
        }
        Ok(())
    }
}

/// Peers that infer together have the same bits, and the logits of one process, also where there are more peers than rows.
pub(super) fn logits_are_those_of_one_process(run: &Run<'_>) {
    let nodes = [7u32, 0, 10, 7, 11];
    for (what, model) in run.models() {
        let trainers = |size: usize| {
            let trainer = |_| {
                let mut trainer = run.build(&model);
                accumulate(&mut trainer, &run.batch(&model, &run.all_nodes(), 0));
                step(&mut trainer);
                trainer
            };
            (0..size).map(trainer).collect::<Vec<_>>()
        };
        let expected = trainers(1)[0].infer(&nodes).expect("logits");
        for size in if what == "gcn" { &[1, 2, 5, 13][..] } else { &[3] } {
            let logits: Vec<Vec<f32>> = thread::scope(|scope| {
                let peers = trainers(*size).into_iter().zip(Peer::group(*size));
                let threads: Vec<_> = peers
                    .map(|(mut trainer, mut peer)| scope.spawn(move || trainer.infer_together(&nodes, &mut peer)))
                    .collect();
                threads.into_iter().map(|t| t.join().expect("no panic").expect("logits")).collect()
            });
            let near = |(a, e): (&f32, &f32)| (a - e).abs() < 1e-5 * e.abs().max(1.0);
            assert!(
                logits[0].len() == expected.len() && logits[0].iter().zip(&expected).all(near),
                "{what}, {size} peers: {:?}, one process {expected:?}",
                logits[0]
            );
            let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(logits.iter().all(|other| bits(other) == bits(&logits[0])), "{what}, {size} peers: {logits:?}");
        }
    }
}
