//! Mini-batches that are delivered to a device: by which operators, of which the fastest are measured, and as which arrays.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use morphgl_cuda::{Device, EdgeList, Exported, Exporter};
use morphgl_execute::{Loader, Pool, PoolSettings, Stop};
use morphgl_graph_store::Topology;
use morphgl_registry::{
    Delivery, Error, Handle, Key, MiniBatch, OptionRole, Phase, Place, Registry, Result, Transferring,
    TransferringContext, panic_message,
};
use serde_json::{Map, Value};

use crate::operator::{Builder, Request};

/// Mini-batches that are being transferred while the next one is waited for.
const IN_FLIGHT: usize = 2;
/// Workers of an operator that samples on the device: while one waits for a mini-batch, another one queues the next.
const DEVICE_WORKERS: usize = 2;
/// Before a delivery is timed, its cache counts the accesses of 64 mini-batches and is filled: at most so many mini-batches, and so long.
/// Where these take longer, it is timed with its cache still empty.
const WARM_UP: (u32, Duration) = (72, Duration::from_secs(2));
/// A delivery is timed over so many mini-batches, or so long.
const TIMED: (u32, Duration) = (16, Duration::from_secs(1));

/// The part of a device's free memory that graph and features may take where the user does not say how much: the rest is for mini-batches
/// and for what is trained there.
const SHARE_OF_FREE: u64 = 4;

/// What the user says of the device.
pub(crate) struct Wish {
    pub(crate) place: Place,
    /// Operators that are to be used.
    pub(crate) operators: Vec<Key>,
    /// Bytes for graph and features on the device.
    pub(crate) memory: Option<u64>,
}

/// A delivery, and the seconds of a mini-batch by it; `Err` says why it cannot run, `None` that it was the only one.
pub(crate) type Timed = (Delivery, std::result::Result<Option<f64>, String>);

/// Where mini-batches go: the transferring operator, and what makes arrays of them. Loaders of other seeds share it.
pub(crate) struct ToDevice {
    pub(crate) key: Key,
    transferring: Mutex<Box<dyn Transferring>>,
    exporter: Exporter,
    edges: EdgeList,
}

/// The deliveries to a device, of which the fastest is to be kept.
pub(crate) struct Candidates {
    registry: Arc<Registry>,
    request: Request,
    device: Device,
    memory: u64,
    deliveries: Vec<Delivery>,
}

impl Candidates {
    /// Finds them.
    ///
    /// # Errors
    ///
    /// There is no such device, or no delivery to it by the operators that the user named; the error lists those that there are.
    pub(crate) fn find(request: Request, wish: &Wish) -> Result<Self> {
        let registry = Registry::collect()?;
        let kind = request.settings.sampling.kind().to_string();
        let mut deliveries = registry.deliveries();
        deliveries.retain(|delivery| {
            let takes_pairs = |key: &Key| registry.get(key).is_ok_and(|operator| operator.takes_pairs);
            let [batching, transferring] = [&delivery.batching, &delivery.transferring];
            (&delivery.read_at, &delivery.delivered_at) == (&Place::Host, &wish.place)
                && [&Place::Host, &wish.place].contains(&&delivery.batched_at)
                && registry.get(batching).is_ok_and(|operator| operator.samples(&kind, None))
                && (request.pairs.is_none() || takes_pairs(batching) && takes_pairs(transferring))
        });
        if deliveries.is_empty() {
            return Err(Error::setting("device", none_at(&registry, &wish.place, &kind)));
        }
        let names: Vec<String> = deliveries.iter().map(name).collect();
        let has = |delivery: &Delivery, key: &Key| delivery.batching == *key || delivery.transferring == *key;
        deliveries.retain(|delivery| wish.operators.iter().all(|key| has(delivery, key)));
        if deliveries.is_empty() {
            let named: Vec<String> = wish.operators.iter().map(Key::to_string).collect();
            let what = format!(
                "no mini-batches come to {} by {}; there are {}",
                wish.place,
                named.join(" and "),
                names.join(", ")
            );
            return Err(Error::setting("route", what));
        }
        let device = Device::open(&wish.place, &deliveries[0].transferring)?;
        let memory = match wish.memory {
            Some(bytes) => bytes,
            None => device.unallocated_bytes()? / SHARE_OF_FREE,
        };
        Ok(Self { registry: Arc::new(registry), request, device, memory, deliveries })
    }

    /// Builds the fastest delivery, which is measured where there are several. Returns what builds its
    /// batching operator, where its mini-batches go, and all deliveries with their seconds.
    ///
    /// # Errors
    ///
    /// No delivery can be built; the error is that of the first.
    pub(crate) fn fastest(
        self,
        (seeds, given): (&[u32], &[u32]),
        edges: EdgeList,
        settings: PoolSettings,
    ) -> Result<(Builder, ToDevice, Vec<Timed>)> {
        let mut timed: Vec<Timed> = Vec::new();
        let mut first_error = None;
        for delivery in &self.deliveries {
            let seconds = match self.deliveries.len() {
                1 => Ok(None),
                _ => self.seconds(delivery, (seeds, given), edges, settings).map(Some).map_err(|error| {
                    let text = error.to_string();
                    first_error.get_or_insert(error);
                    text
                }),
            };
            timed.push((delivery.clone(), seconds));
        }
        let best = timed.iter().filter_map(|(delivery, seconds)| Some((delivery, seconds.as_ref().ok()?)));
        // A delivery that was not timed is the only one.
        let Some((delivery, _)) = best.min_by(|(_, a), (_, b)| a.unwrap_or(0.0).total_cmp(&b.unwrap_or(0.0))) else {
            return Err(first_error.expect("each delivery is timed or has an error"));
        };
        let (builder, to) = self.build(delivery, (seeds, given), edges)?;
        Ok((builder, to, timed))
    }

    fn build(
        &self,
        delivery: &Delivery,
        (seeds, given): (&[u32], &[u32]),
        edges: EdgeList,
    ) -> Result<(Builder, ToDevice)> {
        let Self { registry, request, device, memory, .. } = self;
        let on_device = delivery.batched_at != Place::Host;
        let lists = if on_device { (memory / 2).min(bytes_of_lists(&request.dataset.topology)) } else { 0 };
        let batching = Builder {
            registry: Arc::clone(registry),
            key: delivery.batching.clone(),
            request: Request { gather: request.gather && delivery.gathering == Phase::Batching, ..request.clone() },
            place: delivery.batched_at.clone(),
            options: options(registry, &delivery.batching, OptionRole::DeviceBudget, lists)?,
        };
        let context = TransferringContext {
            gather: request.gather,
            sampled: Some((request.seeds(seeds, given)?, request.settings.clone())),
            options: options(registry, &delivery.transferring, OptionRole::CacheBytes, memory - lists)?,
            ..TransferringContext::new(
                Arc::clone(&request.dataset),
                delivery.batched_at.clone(),
                delivery.delivered_at.clone(),
            )
        };
        let transferring = Mutex::new(registry.transferring(&delivery.transferring, &context)?);
        let exporter = Exporter::new(device, &request.dataset)?;
        Ok((batching, ToDevice { key: delivery.transferring.clone(), transferring, exporter, edges }))
    }

    /// Seconds between mini-batches that nobody reads.
    fn seconds(
        &self,
        delivery: &Delivery,
        (seeds, given): (&[u32], &[u32]),
        edges: EdgeList,
        settings: PoolSettings,
    ) -> Result<f64> {
        let (builder, to) = self.build(delivery, (seeds, given), edges)?;
        let batching = builder.operator(seeds, given)?;
        let failed = |error: morphgl_execute::Error| Error::failed(&delivery.batching, error.to_string());
        let mut pool = Pool::new(&builder.key, batching.as_ref(), pool_settings(&builder, settings)).map_err(failed)?;
        let (mut begun, mut done, mut warm) = (Instant::now(), 0, true);
        let mut epoch = 0;
        loop {
            let num_batches = pool.num_batches();
            let loader = pool.load(epoch, 0..num_batches, &Stop::new()).map_err(failed)?;
            for exported in Arrivals::new(loader, &to) {
                exported?;
                done += 1;
                let (most, long) = if warm { WARM_UP } else { TIMED };
                if done < most && begun.elapsed() < long {
                    continue;
                }
                if !warm {
                    return Ok(begun.elapsed().as_secs_f64() / f64::from(done));
                }
                (begun, done, warm) = (Instant::now(), 0, false);
            }
            epoch += 1;
        }
    }
}

/// The workers of a loader whose operator may sample on the device.
pub(crate) fn pool_settings(builder: &Builder, settings: PoolSettings) -> PoolSettings {
    match builder.place {
        Place::Host => settings,
        _ => PoolSettings { workers: DEVICE_WORKERS, ..settings },
    }
}

/// A delivery's name.
pub(crate) fn name(delivery: &Delivery) -> String {
    format!("{} → {}", delivery.batching, delivery.transferring)
}

/// Why no mini-batches come to a place.
fn none_at(registry: &Registry, place: &Place, kind: &str) -> String {
    let places: Vec<String> = registry.machine().accelerators.iter().map(|found| found.place.to_string()).collect();
    if !places.contains(&place.to_string()) {
        let reasons = registry.status().into_iter().filter_map(|s| s.availability.err()).map(|why| why.reason).next();
        let here =
            if places.is_empty() { reasons.unwrap_or_default() } else { format!("there is {}", places.join(", ")) };
        return format!("there is no {place} here: {here}; leave device out for mini-batches in host memory");
    }
    format!("no operators bring mini-batches that are sampled by {kind} to {place}; leave device out")
}

/// Bytes of a graph's offsets and neighbours, and of its weights.
fn bytes_of_lists(topology: &Topology) -> u64 {
    let per_edge = if topology.weights().is_some() { 8 } else { 4 };
    // With an allowance for look-up tables and alignment.
    let bytes = 8 * (topology.num_nodes() as u64 + 1) + per_edge * topology.num_edges();
    bytes + bytes / 16 + (1 << 20)
}

/// Options of an operator with a budget of device memory, where it takes one.
fn options(registry: &Registry, key: &Key, role: OptionRole, bytes: u64) -> Result<Value> {
    let mut options = Map::new();
    if let Some(option) = registry.get(key)?.options.iter().find(|option| option.role == role) {
        options.insert(option.name.to_string(), bytes.into());
    }
    Ok(Value::Object(options))
}

impl ToDevice {
    fn transfer(&self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        self.transferring.lock().unwrap_or_else(PoisonError::into_inner).transfer(batch)
    }
}

/// Mini-batches of an epoch as they arrive, in order.
pub(crate) struct Arrivals<'a> {
    loader: Loader<'a>,
    to: &'a ToDevice,
    moving: VecDeque<Handle<MiniBatch>>,
    ended: bool,
}

impl<'a> Arrivals<'a> {
    pub(crate) fn new(loader: Loader<'a>, to: &'a ToDevice) -> Self {
        Self { loader, to, moving: VecDeque::new(), ended: false }
    }

    fn step(&mut self) -> Result<Option<Arc<Exported>>> {
        while !self.ended && self.moving.len() <= IN_FLIGHT {
            match self.loader.next() {
                None => self.ended = true,
                Some(batch) => {
                    let batch = batch.map_err(|error| Error::failed("batching", error.to_string()))?;
                    self.moving.push_back(self.to.transfer(batch)?);
                }
            }
        }
        let Some(moved) = self.moving.pop_front() else { return Ok(None) };
        let (batch, _) = moved.wait()?;
        self.to.exporter.export(batch, self.to.edges).map(Some)
    }
}

/// Exhausted after an error.
impl Iterator for Arrivals<'_> {
    type Item = Result<Arc<Exported>>;

    fn next(&mut self) -> Option<Self::Item> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.step()));
        let outcome = outcome.unwrap_or_else(|panic| {
            Err(Error::failed(
                "a mini-batch on its way to the device",
                format!("panicked: {}", panic_message(panic.as_ref())),
            ))
        });
        if outcome.is_err() {
            self.ended = true;
            self.moving.clear();
        }
        outcome.transpose()
    }
}
