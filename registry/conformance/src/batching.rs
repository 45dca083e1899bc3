//! The suite of phase Batching.
//!
//! [`run`] is for every batching operator. Where its description claims that it is interchangeable
//! ([`Description::interchangeable`]), mini-batches equal those of [`reference::sample`], field for field. Of a kind of sampling
//! that another crate declares there is no reference: [`equal`] compares the operators that sample by it. Where it claims to take
//! pairs ([`Description::taking_pairs`]), mini-batches of pairs are tested as those of nodes are; where it claims to take rows of a task
//! ([`Description::taking_rows`]), that no edge and no node of a row's tree is later than the row.

pub mod graphs;
mod laws;
mod pairs;
pub mod reference;
mod rows;
pub mod strategy;

use std::ops::Range;
use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchId, Batching, BatchingContext, BatchingWorker, Build, CustomSettings, Description, Expansion, Fanouts,
    FeatureFill, GivenNodes, HostBatch, MiniBatch, NeighborSettings, Pick, Place, Result, SamplerSettings, Sampling,
    SamplingSpec, SeedSet, ShadowSettings, WalkSettings,
};
use morphgl_sampler_core::TYPED;
use serde_json::{Map, Value};

/// One set of inputs of an operator.
#[derive(Debug, Clone)]
pub struct Case {
    /// The graph.
    pub dataset: Arc<Dataset>,
    /// The nodes, or pairs, to make mini-batches of.
    pub seeds: SeedSet,
    /// Sampler settings.
    pub settings: SamplerSettings,
    /// Whether batching gathers features.
    pub gather: bool,
}

impl Case {
    /// Every third node of a random graph, in mini-batches of 16, by neighbour sampling with fanouts 4,3.
    pub fn new(dataset: Dataset) -> Self {
        let num_nodes = dataset.num_nodes();
        let seeds: Vec<u32> = (0..num_nodes as u32).rev().step_by(3).collect();
        let seeds = SeedSet::new("seeds", &seeds, num_nodes).expect("every third node, each once");
        let fanouts: Fanouts = "4,3".parse().expect("fanouts");
        let settings = SamplerSettings { batch_size: 16, seed: 11, ..fanouts.into() };
        Self { dataset: Arc::new(dataset), seeds, settings, gather: true }
    }

    /// What an operator at `place` with `options` is built from.
    pub fn context(&self, place: Place, options: Value) -> BatchingContext {
        let Self { dataset, seeds, settings, gather } = self.clone();
        BatchingContext { dataset, seeds, settings, gather, place, options }
    }

    /// The same with other settings.
    pub fn with(&self, change: impl FnOnce(&mut SamplerSettings)) -> Self {
        let mut case = self.clone();
        change(&mut case.settings);
        case
    }

    /// The same with other hops.
    ///
    /// # Panics
    ///
    /// When its kind of sampling has none.
    pub fn with_hops(&self, change: impl FnOnce(&mut NeighborSettings)) -> Self {
        self.with(|s| change(hops(s)))
    }

    /// The same with other fanouts.
    ///
    /// # Panics
    ///
    /// When its kind of sampling has none, or `fanouts` are none.
    pub fn with_fanouts(&self, fanouts: &str) -> Self {
        self.with_hops(|hops| hops.fanouts = fanouts.parse().expect("fanouts"))
    }

    /// The same case by another kind of sampling. Kinds that do not take one fanout per layer have three layers.
    pub(crate) fn by(&self, spec: &SamplingSpec) -> Self {
        let hops = self.settings.sampling.hops().cloned().unwrap_or_default();
        let sampling = match *spec {
            SamplingSpec::NEIGHBOR => Sampling::Neighbor(hops),
            SamplingSpec::SHADOW => Sampling::Shadow(ShadowSettings { hops, layers: 3 }),
            SamplingSpec::WALK => Sampling::Walk(WalkSettings { neighbors: 4, ..WalkSettings::of_layers(3) }),
            SamplingSpec { name, by_fanouts, .. } => {
                let hops = by_fanouts.then_some(hops);
                let layers = hops.as_ref().map_or(3, |hops| hops.fanouts.0.len());
                Sampling::Custom(CustomSettings { kind: name.to_string(), layers, hops, settings: Map::new() })
            }
        };
        self.with(|s| s.sampling = sampling)
    }

    /// The same with other seeds.
    pub fn of(&self, seeds: &[u32]) -> Self {
        let seeds = SeedSet::new("seeds", seeds, self.dataset.num_nodes()).expect("nodes of the graph");
        Self { seeds, ..self.clone() }
    }
}

/// The hops of settings by fanouts, to be changed.
///
/// # Panics
///
/// When the kind of sampling has none.
pub fn hops(settings: &mut SamplerSettings) -> &mut NeighborSettings {
    settings.sampling.hops_mut().expect("sampling by fanouts")
}

/// The same given nodes for every mini-batch.
#[derive(Debug)]
pub struct GivenSet {
    marks: Vec<bool>,
    list: Arc<[u32]>,
}

impl GivenSet {
    /// Those of `num_nodes` nodes for which `is_given` is true.
    pub fn new(num_nodes: usize, is_given: impl Fn(u32) -> bool) -> Self {
        let marks: Vec<bool> = (0..num_nodes as u32).map(is_given).collect();
        let list = (0..).zip(&marks).filter_map(|(node, &is_given)| is_given.then_some(node)).collect();
        Self { marks, list }
    }
}

impl GivenNodes for GivenSet {
    fn mark(&self, _: BatchId, nodes: &[u32], marks: &mut Vec<bool>) -> Result<()> {
        marks.clear();
        marks.extend(nodes.iter().map(|&v| self.marks[v as usize]));
        Ok(())
    }

    fn list(&self, _: BatchId) -> Result<Arc<[u32]>> {
        Ok(Arc::clone(&self.list))
    }
}

/// Part of the suite, for operators with which all of it takes minutes: those on emulated devices or on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// One of every so many graphs with seeds or pairs is tested.
    pub cases: usize,
    /// One of every so many combinations of the settings of a kind of sampling is tested. A number that shares no factor with those of
    /// the values of each setting, such as 7, leaves out none of the values.
    pub settings: usize,
}

impl Part {
    /// The whole suite.
    pub const ALL: Self = Self { cases: 1, settings: 1 };
}

/// The operator under test, at one place.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    description: &'a Description,
    place: Place,
    options: Value,
    part: Part,
}

impl Subject<'_> {
    pub(crate) fn build(&self, case: &Case) -> Result<Box<dyn Batching>> {
        let Build::Batching(build) = self.description.build else {
            panic!("{} is not of phase Batching", self.description.key)
        };
        build(&case.context(self.place.clone(), self.options.clone()))
    }

    pub(crate) fn build_valid(&self, case: &Case) -> Box<dyn Batching> {
        self.build(case).unwrap_or_else(|e| panic!("{case:?} is a valid case: {e}"))
    }

    /// Mini-batches of the given ids from one worker; with `recycle`, each is made in the memory of its predecessor.
    pub(crate) fn batches(&self, case: &Case, threads: usize, ids: &[BatchId], recycle: bool) -> Vec<HostBatch> {
        let mut worker = worker(self.build_valid(case).as_ref(), threads);
        let mut recycled = None;
        let mut batch = |&id| {
            let batch = prepare(worker.as_mut(), id, recycled.take());
            assert_eq!((batch.id(), batch.place()), (id, self.place.clone()), "id and place of the mini-batch");
            let host = on_host(&batch);
            assert_eq!(batch.num_seeds(), host.num_seeds, "number of seeds of {id}");
            recycled = recycle.then_some(batch);
            host
        };
        ids.iter().map(&mut batch).collect()
    }

    /// Shares of a mini-batch from one worker.
    pub(crate) fn shares(&self, case: &Case, id: BatchId, shares: &[Range<usize>]) -> Vec<Result<HostBatch>> {
        let operator = self.build(case).unwrap_or_else(|e| panic!("{case:?} is a valid case: {e}"));
        let mut worker = operator.worker(1).unwrap_or_else(|e| panic!("a worker: {e}"));
        let mut share = |share: &Range<usize>| match worker.prepare_share(id, share.clone(), None)?.wait()?.0 {
            MiniBatch::Host(batch) => Ok(batch),
            MiniBatch::Device(batch) => batch.to_host(),
        };
        shares.iter().map(&mut share).collect()
    }

    /// All mini-batches of an epoch.
    pub(crate) fn epoch(&self, case: &Case, epoch: u32) -> Vec<HostBatch> {
        self.batches(case, 1, &ids(case, epoch), true)
    }

    /// The cases that are tested: one of every [`Part::cases`].
    pub(crate) fn some(&self, cases: Vec<Case>) -> impl Iterator<Item = Case> + use<> {
        let every = self.part.cases;
        cases.into_iter().skip(every - 1).step_by(every)
    }

    /// Whether the next combination of settings is tested: one of every [`Part::settings`].
    pub(crate) fn takes_some(&self) -> impl FnMut() -> bool + use<> {
        let (every, mut count) = (self.part.settings, 0);
        move || {
            count += 1;
            count % every == 0
        }
    }

    /// Whether its mini-batches have features if they are to be gathered.
    pub(crate) fn gathers(&self) -> bool {
        self.description.features != FeatureFill::Never
    }
}

pub(crate) fn worker(operator: &dyn Batching, threads: usize) -> Box<dyn BatchingWorker> {
    operator.worker(threads).unwrap_or_else(|e| panic!("a worker of {threads} threads: {e}"))
}

pub(crate) fn prepare(worker: &mut dyn BatchingWorker, id: BatchId, recycled: Option<MiniBatch>) -> MiniBatch {
    worker.prepare(id, recycled).and_then(|handle| handle.wait()).unwrap_or_else(|e| panic!("{id}: {e}")).0
}

pub(crate) fn on_host(batch: &MiniBatch) -> HostBatch {
    batch.to_host().unwrap_or_else(|e| panic!("{}: {e}", batch.id())).into_owned()
}

/// The ids of an epoch's mini-batches.
pub(crate) fn ids(case: &Case, epoch: u32) -> Vec<BatchId> {
    let num_batches = case.seeds.num_examples().div_ceil(case.settings.batch_size) as u32;
    (0..num_batches).map(|index| BatchId { epoch, index }).collect()
}

/// Tests a batching operator, for each kind of sampling that it describes: the properties of them all, every option, and where it
/// is interchangeable that its mini-batches are those of the reference. Skips an operator that cannot run on this machine, and
/// prints why.
///
/// # Panics
///
/// When the operator does not conform.
pub fn run(description: &Description) {
    run_part(description, Part::ALL);
}

/// As [`run`], a part of it.
///
/// # Panics
///
/// As [`run`].
pub fn run_part(description: &Description, part: Part) {
    let Some(place) = crate::output_place(description) else { return };
    assert!(!description.samplers.is_empty(), "a batching operator samples by one kind at least");
    let subject = Subject { description, place, options: Value::Null, part };
    for spec in description.samplers {
        properties(&subject, spec);
        options(&subject, spec);
        settings(&subject, spec);
        if description.takes_pairs {
            pairs::run(&subject, spec);
        }
        if description.takes_rows && *spec == TYPED {
            rows::run(&subject);
        }
        match *spec {
            _ if !description.interchangeable => {}
            SamplingSpec::NEIGHBOR => neighbor_is_the_reference(&subject),
            SamplingSpec::SHADOW => shadow_is_the_reference(&subject),
            SamplingSpec::WALK => walk_is_the_reference(&subject),
            TYPED => typed_is_the_reference(&subject),
            _ => {}
        }
    }
}

/// Tests that two operators make the same mini-batches by the kind of sampling `spec`, which both describe and which has no
/// reference: with its defaults, and with each of its settings set. Skips operators that cannot run on this machine.
///
/// # Panics
///
/// When a mini-batch differs, or one of the operators does not sample by the kind.
pub fn equal(spec: &SamplingSpec, descriptions: [&Description; 2]) {
    let samples = |description: &Description| assert!(description.samplers.contains(spec), "{}", description.key);
    descriptions.into_iter().for_each(samples);
    let [Some(one), Some(other)] = descriptions.map(crate::output_place) else { return };
    let subject = |description, place| Subject { description, place, options: Value::Null, part: Part::ALL };
    let (one, other) = (subject(descriptions[0], one), subject(descriptions[1], other));
    for case in cases() {
        let case = case.by(spec);
        laws::batches_equal_those_of(&one, &other, &case);
        each_setting(&one, spec, &case, |case| laws::batches_equal_those_of(&one, &other, case));
    }
}

/// Calls `checked` with each setting of a kind of another crate set to each of the values to try, where the operator takes it.
fn each_setting(subject: &Subject<'_>, spec: &SamplingSpec, case: &Case, checked: impl Fn(&Case)) {
    let built = |settings: Value| {
        let case = case.with(|s| {
            if let (Sampling::Custom(custom), Value::Object(settings)) = (&mut s.sampling, settings) {
                custom.settings = settings;
            }
        });
        subject.build(&case).map(|_| case)
    };
    crate::set_each_option(spec.settings, built, |_, case| checked(&case));
}

/// With each setting of a kind of another crate set, an operator makes valid mini-batches, each a function of its id; every setting
/// has a default, which is what a mini-batch without the setting is made by; unknown settings and fanouts out of place are refused.
fn settings(subject: &Subject<'_>, spec: &SamplingSpec) {
    let case = Case::new(graphs::random(60, 5, false)).by(spec);
    let Sampling::Custom(custom) = &case.settings.sampling else { return };
    for setting in spec.settings {
        assert!(setting.default_value().is_some(), "setting {}: its default is no value", setting.name);
    }
    let defaults = CustomSettings { settings: spec.defaults(), ..custom.clone() };
    let defaults = case.with(|s| s.sampling = Sampling::Custom(defaults));
    assert_eq!(subject.epoch(&case, 0), subject.epoch(&defaults, 0), "the settings that are left out are the defaults");
    each_setting(subject, spec, &case, |case| {
        laws::batches_fit_the_graph(subject, case);
        laws::batches_are_a_function_of_their_id(subject, case);
        laws::shares_have_their_seeds(subject, case);
        laws::reordering_renames_the_nodes(subject, case);
    });
    let refuse = |what: &str, wrong: CustomSettings| {
        let error = subject.build(&case.with(|s| s.sampling = Sampling::Custom(wrong))).err();
        let error = error.unwrap_or_else(|| panic!("{what} has to be refused"));
        crate::one_line(what, &error.to_string());
    };
    let unknown = [("no-setting".to_string(), Value::Null)].into_iter().collect();
    refuse("a setting that the kind does not have", CustomSettings { settings: unknown, ..custom.clone() });
    let hops = custom.hops.is_none().then(NeighborSettings::default);
    refuse("fanouts out of place", CustomSettings { hops, ..custom.clone() });
}

/// With each of its options set, an operator makes valid mini-batches, each a function of its id; an interchangeable one the same
/// ones as without.
fn options(without: &Subject<'_>, spec: &SamplingSpec) {
    let &Subject { description, ref place, part, .. } = without;
    // Some seeds repeat.
    let seeds: Vec<u32> = (0..32).map(|i| i * i % 60).collect();
    let case = Case::new(graphs::random(60, 5, false)).of(&seeds).by(spec);
    let built = |options: Value| {
        let subject = Subject { description, place: place.clone(), options, part };
        subject.build(&case).map(|_| subject)
    };
    crate::set_each_option(description.options, built, |_, subject| {
        laws::batches_fit_the_graph(&subject, &case);
        laws::batches_are_a_function_of_their_id(&subject, &case);
        match &case.settings.sampling {
            _ if !description.interchangeable => {}
            Sampling::Custom(_) => laws::batches_equal_those_of(&subject, without, &case),
            _ => laws::batches_equal_the_reference(&subject, &case),
        }
    });
}

fn properties(subject: &Subject<'_>, spec: &SamplingSpec) {
    for case in subject.some(cases()) {
        let case = case.by(spec);
        laws::batches_fit_the_graph(subject, &case);
        laws::every_seed_comes_as_often_as_given(subject, &case);
        laws::batches_are_a_function_of_their_id(subject, &case);
        laws::shares_have_their_seeds(subject, &case);
        laws::reordering_renames_the_nodes(subject, &case);
    }
    let case = Case::new(graphs::random(120, 7, true)).by(spec);
    laws::seed_and_epoch_change_the_draws(subject, &case);
    laws::features_are_left_out_when_asked(subject, &case);
    laws::impossible_requests_are_refused(subject, &case);
}

fn neighbor_is_the_reference(subject: &Subject<'_>) {
    let mut is_taken = subject.takes_some();
    for case in cases() {
        for expansion in [Expansion::All, Expansion::New] {
            for pick in [Pick::Uniform, Pick::Weighted] {
                if pick == Pick::Weighted && case.dataset.topology.weights().is_none() {
                    continue;
                }
                for fanouts in ["-1", "3", "5,4,3", "2,-1", "1,1,1,1", "100,2"] {
                    if !is_taken() {
                        continue;
                    }
                    let case = case.with_fanouts(fanouts).with_hops(|h| (h.expansion, h.pick) = (expansion, pick));
                    laws::batches_fit_the_graph(subject, &case);
                    laws::rows_keep_to_the_fanout(subject, &case);
                    laws::batches_equal_the_reference(subject, &case);
                    laws::shares_equal_the_reference(subject, &case);
                    laws::given_nodes_are_left_out(subject, &case);
                    // Operators that read files write each graph first.
                    if fanouts == "5,4,3" {
                        laws::reordering_renames_the_nodes(subject, &case);
                    }
                }
            }
        }
    }
    // Hubs: long rows, of which many neighbours are drawn.
    for seeds in [&[0][..], &[0, 5, 0]] {
        let hub = Case::new(graphs::random(900, 5, false)).of(seeds).with_fanouts("200,80");
        laws::batches_equal_the_reference(subject, &hub);
        laws::reordering_renames_the_nodes(subject, &hub);
    }
}

fn shadow_is_the_reference(subject: &Subject<'_>) {
    let mut is_taken = subject.takes_some();
    for case in cases() {
        for (fanouts, layers) in [("-1", 1), ("3", 2), ("5,4,3", 5), ("2,-1", 3), ("1,1,1,1", 2)] {
            for expansion in [Expansion::All, Expansion::New] {
                if !is_taken() {
                    continue;
                }
                let hops = NeighborSettings { expansion, ..fanouts.parse::<Fanouts>().expect("fanouts").into() };
                let case = case.with(|s| s.sampling = Sampling::Shadow(ShadowSettings { hops, layers }));
                laws::batches_fit_the_graph(subject, &case);
                laws::batches_equal_the_reference(subject, &case);
                laws::shares_equal_the_reference(subject, &case);
            }
        }
    }
    let weighted = Case::new(graphs::random(120, 7, true)).with_hops(|h| h.pick = Pick::Weighted);
    laws::batches_equal_the_reference(subject, &weighted.by(&SamplingSpec::SHADOW));
}

fn walk_is_the_reference(subject: &Subject<'_>) {
    let walk = |layers, walks, length, restart, neighbors| WalkSettings { layers, walks, length, restart, neighbors };
    let settings = [
        walk(1, 1, 1, 0.0, 1),
        walk(2, 10, 2, 0.5, 3),
        walk(3, 4, 5, 0.1, 100),
        walk(2, 30, 7, 0.0, 5),
        walk(1, 3, 4, 1.0, 2),
    ];
    let mut is_taken = subject.takes_some();
    for case in cases() {
        for walk in &settings {
            if !is_taken() {
                continue;
            }
            let case = case.with(|s| s.sampling = Sampling::Walk(walk.clone()));
            laws::batches_fit_the_graph(subject, &case);
            laws::batches_equal_the_reference(subject, &case);
            laws::shares_equal_the_reference(subject, &case);
        }
    }
}

/// On graphs with and without types, with one fanout for all edge types and with fanouts of single ones.
fn typed_is_the_reference(subject: &Subject<'_>) {
    let typed = |weights| {
        let case = Case::new(graphs::typed(160, 9, weights)).by(&TYPED);
        [case.clone(), case.of(&[0, 5, 0, 159]), case.with(|s| s.batch_size = 1 << 20)]
    };
    let mut is_taken = subject.takes_some();
    for case in cases().iter().map(|case| case.by(&TYPED)).chain(typed(false)).chain(typed(true)) {
        let topology = &case.dataset.topology;
        for (fanouts, by_type) in [
            ("-1", ""),
            ("3", ""),
            ("5,4,3", ""),
            ("2,-1", "big-a-big=0,7;big-b-small=-1,0"),
            ("100,2", "c=1,1"),
            ("4,4", "big-a-big=70,3"),
        ] {
            for expansion in [Expansion::All, Expansion::New] {
                for pick in [Pick::Uniform, Pick::Weighted] {
                    if pick == Pick::Weighted && topology.weights().is_none() || !is_taken() {
                        continue;
                    }
                    let case = case.with(|s| {
                        let Sampling::Custom(custom) = &mut s.sampling else {
                            unreachable!("the case samples by type")
                        };
                        let fanouts: Fanouts = fanouts.parse().expect("fanouts");
                        custom.layers = fanouts.0.len();
                        custom.hops = Some(NeighborSettings { fanouts, expansion, pick });
                        if topology.types().is_some() {
                            custom.settings.insert("fanouts_by_type".into(), by_type.into());
                        }
                    });
                    laws::batches_fit_the_graph(subject, &case);
                    laws::edges_have_their_types(subject, &case);
                    laws::batches_equal_the_reference(subject, &case);
                    laws::shares_equal_the_reference(subject, &case);
                    if topology.types().is_none() {
                        let hops = Case {
                            settings: SamplerSettings { sampling: neighbor(&case), ..case.settings.clone() },
                            gather: case.gather && subject.gathers(),
                            ..case.clone()
                        };
                        let batches = subject.epoch(&case, 1);
                        let alike = ids(&case, 1).into_iter().map(|id| reference::sample(&hops, id));
                        assert!(batches.into_iter().eq(alike), "a graph without types is sampled as by neighbours");
                    }
                }
            }
        }
    }
    // Trees, with times and without; of rows that ascend by time, and of others.
    let untyped = Case::new(graphs::random(120, 7, true)).of(&[7, 30, 7, 0, 99, 1]).by(&TYPED);
    for case in typed(false).iter().chain(&typed(true)).chain([&untyped]) {
        for (ascends, of_edges) in [(false, true), (false, false), (true, true)] {
            let dataset = Arc::new(graphs::timed(&case.dataset, ascends, of_edges));
            for (disjoint, temporal) in [(true, "no"), (true, "uniform"), (false, "uniform"), (false, "last")] {
                for (fanouts, expansion, pick) in [
                    ("3,2", Expansion::All, Pick::Uniform),
                    ("-1,2", Expansion::New, Pick::Uniform),
                    ("4,3", Expansion::All, Pick::Weighted),
                ] {
                    let by_weight = pick == Pick::Weighted;
                    let is_possible = !by_weight || temporal != "last" && dataset.topology.weights().is_some();
                    if !is_possible || !is_taken() {
                        continue;
                    }
                    let case = Case { dataset: Arc::clone(&dataset), ..case.clone() }.with(|s| {
                        let Sampling::Custom(custom) = &mut s.sampling else {
                            unreachable!("the case samples by type")
                        };
                        let fanouts: Fanouts = fanouts.parse().expect("fanouts");
                        (custom.layers, s.batch_size) = (fanouts.0.len(), 5);
                        custom.hops = Some(NeighborSettings { fanouts, expansion, pick });
                        custom.settings.insert("disjoint".into(), disjoint.into());
                        custom.settings.insert("temporal".into(), temporal.into());
                    });
                    laws::batches_fit_the_graph(subject, &case);
                    laws::edges_have_their_types(subject, &case);
                    laws::batches_equal_the_reference(subject, &case);
                    laws::shares_equal_the_reference(subject, &case);
                    laws::trees_end_at_the_time_of_their_seeds(subject, &case, temporal != "no");
                }
            }
        }
    }
    // Sub-rows of hubs.
    let hub = Case::new(graphs::typed(900, 5, false)).by(&TYPED).of(&[0, 1, 0]);
    laws::batches_equal_the_reference(subject, &hub);
}

/// Neighbour sampling by the fanouts of a kind of another crate.
fn neighbor(case: &Case) -> Sampling {
    let Sampling::Custom(custom) = &case.settings.sampling else { unreachable!("the case samples by type") };
    Sampling::Neighbor(custom.hops.clone().expect("a kind by fanouts"))
}

fn cases() -> Vec<Case> {
    let random = Case::new(graphs::random(120, 7, false));
    // Nodes as seeds up to four times, in one mini-batch and in several; and more often than the graph has nodes.
    let repeating: Vec<u32> = (0..70).map(|i| if i % 3 == 0 { 7 * (i % 4) } else { i }).collect();
    let often: Vec<u32> = (0..40).map(|i| i % 3).collect();
    vec![
        random.of(&repeating),
        random.of(&repeating).with(|s| (s.batch_size, s.shuffle) = (1 << 20, false)),
        Case::new(graphs::random(120, 7, true)).of(&repeating),
        Case::new(graphs::cycle(5)).of(&often),
        Case::new(graphs::cycle(1)).of(&[0, 0, 0]),
        random.with(|s| s.shuffle = false),
        random.with(|s| s.batch_size = 1 << 20),
        random.of(&[3]),
        random,
        Case::new(graphs::random(120, 7, true)),
        Case::new(graphs::random(60, 0, false)),
        Case::new(graphs::bare(&graphs::cycle(6))),
        Case::new(graphs::cycle(1)),
    ]
}
