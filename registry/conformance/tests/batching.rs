//! The suite of phase Batching, run on a correct operator and on operators with one fault each.

use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use morphgl_conformance::batching::{Case, Part, equal, reference, run, run_part};
use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{
    At, BatchId, Batching, BatchingContext, BatchingWorker, Build, Description, Error, Handle, Hardware, HostBatch,
    Key, MiniBatch, OptionSpec, OptionType, PairSettings, Phase, Result, Sampling, SamplingSpec,
};

/// The reference as an operator, with a fault.
#[derive(Debug, Clone)]
struct Faulty<const FAULT: u8>(Case);

/// What each fault does to a mini-batch; fault 0 does nothing.
fn spoil(fault: u8, batch: &mut HostBatch, recycled: Option<MiniBatch>) {
    match fault {
        1 => batch.labels.iter_mut().for_each(|l| *l = 0),
        // Unknown targets become known.
        16 => batch.targets.values.iter_mut().filter(|t| t.is_nan()).for_each(|t| *t = 0.0),
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
        // A pair the other way round.
        17 => batch.pairs.iter_mut().for_each(|pairs| pairs.ends[0].reverse()),
        // A negative of another source.
        18 => batch.pairs.iter_mut().for_each(|pairs| {
            let (last, first) = (pairs.ends.len() - 1, pairs.ends[0]);
            pairs.ends[last][0] = first[1];
        }),
        19 => batch.pairs = None,
        // A pair's label is that of another.
        21 if batch.pairs.is_some() && !batch.labels.is_empty() => batch.labels.rotate_left(1),
        8 => batch.blocks.iter_mut().for_each(|b| b.weights.iter_mut().flatten().for_each(|w| *w += 1.0)),
        _ => {}
    }
}

impl<const FAULT: u8> Batching for Faulty<FAULT> {
    fn num_batches(&self) -> usize {
        self.0.seeds.num_examples().div_ceil(self.0.settings.batch_size)
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
        let num_seeds = batch_size.min(self.0.seeds.num_examples() - id.index as usize * batch_size);
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
        if let (20, Some(pairs)) = (FAULT, case.seeds.pairs()) {
            // The pairs' own edges are sampled.
            let settings = PairSettings { exclude: false, ..*pairs.settings() };
            let types = pairs.edge_types().to_vec();
            case = case.of_pairs_against(pairs.ends(), pairs.given(), settings);
            if !types.is_empty() {
                case.seeds = case.seeds.clone().with_edge_types("pairs", &types).expect("a type per pair");
            }
        }
        let mut batch = reference::sample_share(&case, drawn, share);
        batch.id = id;
        spoil(FAULT, &mut batch, recycled);
        Ok(Handle::ready(MiniBatch::Host(batch), Duration::ZERO))
    }
}

fn build<const FAULT: u8>(context: &BatchingContext) -> Result<Box<dyn Batching>> {
    let BatchingContext { dataset, seeds, mut settings, gather, options, .. } = context.clone();
    if settings.neighbor()?.fanouts.0.is_empty() || settings.batch_size == 0 {
        return Err(Error::setting("settings", "no mini-batch can be made; give fanouts and a batch size"));
    }
    match (FAULT, options[DEPTH.name].is_null()) {
        // An option changes the draws.
        (12, false) => settings.seed += 1,
        (13, false) => return Err(Error::setting("options", "the operator has none; leave them out")),
        _ => {}
    }
    Ok(Box::new(Faulty::<FAULT>(Case { dataset, seeds, settings, gather })))
}

const DEPTH: OptionSpec = OptionSpec::new("depth", OptionType::Count, "2", "reads in flight");

/// A sampler that claims nothing of its mini-batches but what every sampler does.
fn sampler<const FAULT: u8>() -> Description {
    let key = Key::new(Phase::Batching, Hardware::CPU, "Reference");
    let description = Description::new(key, "the reference", At::Host, At::Host, Build::Batching(build::<FAULT>));
    description.with_options(&[DEPTH])
}

fn interchangeable<const FAULT: u8>() -> Description {
    sampler::<FAULT>().interchangeable()
}

#[test]
fn the_reference_conforms() {
    run_part(&interchangeable::<0>().taking_pairs(), Part { cases: 1, settings: 7 });
}

#[track_caller]
fn refused<const FAULT: u8>(description: Description, words: &str) {
    let panic = catch_unwind(|| run(&description)).expect_err("the fault has to be found");
    let message = morphgl_registry::panic_message(panic.as_ref());
    assert!(message.contains(words), "fault {FAULT}: {message}");
}

#[test]
fn every_fault_is_found() {
    refused::<1>(sampler::<1>(), "labels of the seeds");
    refused::<16>(sampler::<16>(), "targets of the seeds");
    refused::<2>(sampler::<2>(), "in-degrees of the input nodes");
    refused::<3>(sampler::<3>(), "features of the input nodes");
    refused::<4>(sampler::<4>(), "the source nodes of a block");
    refused::<5>(sampler::<5>(), "more often than the graph has it");
    refused::<6>(sampler::<6>(), "labels of the seeds");
    refused::<7>(interchangeable::<7>(), "blocks of");
    refused::<8>(sampler::<8>(), "more often than the graph has it");
    refused::<9>(sampler::<9>(), "another epoch");
    refused::<10>(sampler::<10>(), "seeds of the share");
    refused::<11>(sampler::<11>(), "of a reordered graph");
    refused::<12>(interchangeable::<12>(), "input nodes of");
    refused::<13>(sampler::<13>(), "option depth: every value is refused");
    refused::<20>(sampler::<20>().taking_pairs(), "which it is trained on");
    refused::<17>(sampler::<17>().taking_pairs(), "positives of mini-batch");
    refused::<18>(sampler::<18>().taking_pairs(), "a negative has the source of its positive");
    refused::<21>(sampler::<21>().taking_pairs(), "labels of the pairs of");
    refused::<19>(sampler::<19>().taking_pairs(), "a mini-batch of pairs has pairs");
}

#[test]
fn a_sampler_with_other_mini_batches_conforms_where_it_does_not_claim_to_be_interchangeable() {
    // Rows in another order, and draws that depend on an option.
    run(&sampler::<7>());
    run(&sampler::<12>());
}

#[test]
fn an_option_without_a_known_value_is_found() {
    const OPTIONS: [OptionSpec; 1] = [OptionSpec::new("bytes", OptionType::Count, "half of the memory", "a size")];
    refused::<0>(sampler::<0>().with_options(&OPTIONS), "option bytes: no value is known");
}

const ROUNDS: OptionSpec = OptionSpec::new("rounds", OptionType::Count, "0", "other draws").such_as(&["3"]);
const OWN: SamplingSpec = SamplingSpec::new("own", "neighbours of our own").by_fanouts().with_settings(&[ROUNDS]);

/// Neighbour sampling as a kind of another crate, with a setting that changes the draws.
fn build_own<const FAULT: u8>(context: &BatchingContext) -> Result<Box<dyn Batching>> {
    let mut context = context.clone();
    let custom = match &context.settings.sampling {
        // Fault 15: settings are not checked.
        Sampling::Custom(custom) if FAULT == 15 => custom,
        _ => context.settings.custom(&OWN)?,
    };
    // Fault 14: a setting that is left out is not its default.
    let rounds = if FAULT == 14 && custom.settings.is_empty() { Some(5) } else { custom.value(&ROUNDS).as_u64() };
    let hops = custom.hops.clone().unwrap_or_default();
    context.settings.seed += 1000 * rounds.unwrap_or(0);
    context.settings.sampling = Sampling::Neighbor(hops);
    build::<FAULT>(&context)
}

fn own<const FAULT: u8>(interchangeable: bool) -> Description {
    let key = Key::new(Phase::Batching, Hardware::CPU, "Own");
    let description =
        Description::new(key, "a kind of its own", At::Host, At::Host, Build::Batching(build_own::<FAULT>));
    let description = description.sampling(&[OWN]).with_options(&[DEPTH]);
    if interchangeable { description.interchangeable() } else { description }
}

#[test]
fn a_kind_of_another_crate_is_checked_by_every_property_and_against_its_other_operators() {
    run(&own::<0>(true));
    // Its mini-batches have no reference: rows may be in any order.
    run(&own::<7>(true));
    run(&own::<12>(false));
    refused::<5>(own::<5>(false), "more often than the graph has it");
    refused::<12>(own::<12>(true), "input nodes of");
    refused::<15>(own::<15>(false), "a setting that the kind does not have");
    equal(&OWN, [&own::<0>(true), &own::<13>(true)]);
    for other in [own::<7>(true), sampler::<0>()] {
        let panic = catch_unwind(|| equal(&OWN, [&own::<0>(true), &other])).expect_err("they differ");
        let message = morphgl_registry::panic_message(panic.as_ref());
        assert!(message.contains("by two operators") || message.contains("Batching_CPU_Reference"), "{message}");
    }
}

#[test]
fn a_setting_that_is_not_its_default_where_it_is_left_out_is_found() {
    refused::<14>(own::<14>(false), "the permutation of epoch 0");
    const WORDS: OptionSpec = OptionSpec::new("words", OptionType::Count, "as many", "a number").such_as(&["1"]);
    const KIND: SamplingSpec = SamplingSpec::new("own", "a kind").by_fanouts().with_settings(&[WORDS]);
    refused::<0>(own::<0>(false).sampling(&[KIND]), "setting words: its default is no value");
}
