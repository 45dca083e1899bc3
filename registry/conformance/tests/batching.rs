//! The suite of phase Batching, run on a correct operator and on operators with one fault each.

use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use morphgl_conformance::batching::{Case, reference, run, run_neighbor};
use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{
    At, BatchId, Batching, BatchingContext, BatchingWorker, Build, Description, Error, Handle, Hardware, HostBatch,
    Key, MiniBatch, Phase, Result,
};

/// The reference as an operator, with a fault.
#[derive(Debug, Clone)]
struct Faulty<const FAULT: u8>(Case);

/// What each fault does to a mini-batch; fault 0 does nothing.
fn spoil(fault: u8, batch: &mut HostBatch, recycled: Option<MiniBatch>) {
    match fault {
        1 => batch.labels.iter_mut().for_each(|l| *l = 0),
        2 => batch.degrees.iter_mut().for_each(|d| *d = 1.0),
        3 => batch.features = None,
        4 => batch.blocks.reverse(),
        // An edge too many.
        5 => batch.blocks.iter_mut().filter(|b| b.num_edges() > 0).for_each(|b| {
            b.indices.push(b.indices[b.num_edges() - 1]);
            *b.indptr.last_mut().expect("an offset") += 1;
            b.weights.iter_mut().for_each(|w| w.push(w[w.len() - 1]));
        }),
        // Data of the recycled mini-batch remains.
        6 => {
            if let Some(MiniBatch::Host(old)) = recycled {
                batch.labels.extend(old.labels);
            }
        }
        // Rows in another order.
        7 => {
            for block in &mut batch.blocks {
                for row in 0..block.num_dst {
                    let slots = block.indptr[row] as usize..block.indptr[row + 1] as usize;
                    block.indices[slots.clone()].reverse();
                    block.weights.iter_mut().for_each(|w| w[slots.clone()].reverse());
                }
            }
        }
        8 => batch.blocks.iter_mut().for_each(|b| b.weights.iter_mut().flatten().for_each(|w| *w += 1.0)),
        _ => {}
    }
}

impl<const FAULT: u8> Batching for Faulty<FAULT> {
    fn num_batches(&self) -> usize {
        self.0.seeds.nodes().len().div_ceil(self.0.settings.batch_size)
    }

    fn worker(&self, _threads: usize) -> Result<Box<dyn BatchingWorker>> {
        Ok(Box::new(self.clone()))
    }
}

impl<const FAULT: u8> BatchingWorker for Faulty<FAULT> {
    fn prepare_share(
        &mut self,
        id: BatchId,
        share: Range<usize>,
        recycled: Option<MiniBatch>,
    ) -> Result<Handle<MiniBatch>> {
        if id.index as usize >= self.num_batches() {
            return Err(Error::setting(id, "there is no such mini-batch; ask for one of the epoch"));
        }
        // Fault 9: the epoch is ignored.
        let drawn = BatchId { epoch: if FAULT == 9 { 0 } else { id.epoch }, index: id.index };
        // Fault 10: a share is the whole mini-batch.
        let share = if FAULT == 10 { 0..usize::MAX } else { share };
        let batch_size = self.0.settings.batch_size;
        let num_seeds = batch_size.min(self.0.seeds.nodes().len() - id.index as usize * batch_size);
        if share.start >= share.end.min(num_seeds) {
            return Err(Error::setting(id, "the share has no seed; give one with a seed"));
        }
        let mut case = self.0.clone();
        if FAULT == 11 {
            // Draw keys are ignored.
            let topology = &case.dataset.topology;
            let (indptr, indices) = (topology.indptr().clone(), topology.indices().clone());
            let topology = Topology::new(indptr, indices, topology.weights().cloned()).expect("the same graph");
            case.dataset = Arc::new(Dataset { topology, ..(*case.dataset).clone() });
        }
        let mut batch = reference::sample_share(&case, drawn, share);
        batch.id = id;
        spoil(FAULT, &mut batch, recycled);
        Ok(Handle::ready(MiniBatch::Host(batch), Duration::ZERO))
    }
}

fn build<const FAULT: u8>(context: &BatchingContext) -> Result<Box<dyn Batching>> {
    let BatchingContext { dataset, seeds, settings, gather, .. } = context.clone();
    if settings.neighbor()?.fanouts.0.is_empty() || settings.batch_size == 0 {
        return Err(Error::setting("settings", "no mini-batch can be made; give fanouts and a batch size"));
    }
    Ok(Box::new(Faulty::<FAULT>(Case { dataset, seeds, settings, gather })))
}

fn description<const FAULT: u8>() -> Description {
    let key = Key::new(Phase::Batching, Hardware::CPU, "Reference");
    Description::new(key, "the reference", At::Host, At::Host, Build::Batching(build::<FAULT>))
}

#[test]
fn the_reference_conforms() {
    run_neighbor(&description::<0>());
}

#[track_caller]
fn refused<const FAULT: u8>(suite: fn(&Description), words: &str) {
    let panic = catch_unwind(|| suite(&description::<FAULT>())).expect_err("the fault has to be found");
    let message = morphgl_registry::panic_message(panic.as_ref());
    assert!(message.contains(words), "fault {FAULT}: {message}");
}

#[test]
fn every_fault_is_found() {
    refused::<1>(run, "labels of the seeds");
    refused::<2>(run, "in-degrees of the input nodes");
    refused::<3>(run, "features of the input nodes");
    refused::<4>(run, "the source nodes of a block");
    refused::<5>(run, "more often than the graph has it");
    refused::<6>(run, "labels of the seeds");
    refused::<7>(run_neighbor, "blocks of");
    refused::<8>(run, "more often than the graph has it");
    refused::<9>(run, "another epoch");
    refused::<10>(run, "seeds of the share");
    refused::<11>(run, "of a reordered graph");
}
