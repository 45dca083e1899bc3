//! GB/s of the gather from host memory, in the order of the nodes and in that of their pages, and from device memory, alternating
//! with block copies; with accessible peers also from the memory of all devices; and of the naive gather from host memory, the baseline.
//!
//! Three byte counts of the same gather: the rows themselves; the 32-byte sectors that they touch, the minimum that memory and
//! bus move; and the 128-byte lines. An unaligned row touches one line more than its length: one of 200 bytes 2.5 on average.
//! The share is the ratio of the lines' rate to the block copy's.
//!
//! `cargo bench -p morphgl-transferring-cuda --bench gather -- [--json] [--row-bytes 200,400,512,1024,1044]
//! [--table 4294967296] [--lines 768]`: lengths of rows, bytes of their table, which is beyond every cache of host and device
//! unless given, and the lines in flight over the bus. Needs a CUDA device.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::sync::Arc;
use std::time::Duration;

use morphgl_cuda::{Buffer, CudaBatch, Device, Pinned, Stream, accelerators, probe};
use morphgl_graph_store::{Array, Dataset, FeatureMatrix, Topology};
use morphgl_platform::Pages;
use morphgl_registry::{HostBatch, Machine, MiniBatch, Place, Transferring, TransferringContext};
use morphgl_transferring_cuda::{ZERO_COPY_KEY, ZeroCopy};
use serde_json::json;

/// Bytes that one gather moves.
const BATCH: usize = 256 << 20;
const ROUNDS: usize = 9;
const SECTOR: usize = 32;
const LINE: usize = 128;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    if let Err(unavailable) = probe(&Machine::probe()) {
        println!("nothing measured: {}", unavailable.reason);
        return Ok(());
    }
    let all: Vec<String> = std::env::args().collect();
    let after = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1)).map(String::as_str);
    let json = all.iter().any(|a| a == "--json");
    let table_bytes: usize = after("--table").unwrap_or("4294967296").parse()?;
    let in_flight: u32 = after("--lines").unwrap_or("768").parse()?;
    let lengths = after("--row-bytes").unwrap_or("200,400,512,1024,1044").split(',').map(str::parse);
    let lengths: Vec<usize> = lengths.collect::<Result<_, _>>()?;
    let place: Place = "cuda:0".parse()?;
    let device = Device::open(&place, &ZERO_COPY_KEY)?;
    let stream = Stream::new(&device, false)?;
    let peers = accessible(&device)?;
    if !json {
        println!(
            "{device:?}, peers {peers:?}\nrow bytes  from      access   order  GB/s (min-max)         sectors   lines   block copy   share"
        );
    }
    for row_bytes in lengths {
        let num_nodes = table_bytes / row_bytes;
        let dataset = Arc::new(table(num_nodes, row_bytes)?);
        let nodes = scattered(num_nodes, BATCH / row_bytes);
        for (from, access, order) in [
            (From::Host, "naive", "nodes"),
            (From::Host, "aligned", "nodes"),
            (From::Host, "aligned", "pages"),
            (From::Device, "aligned", "nodes"),
            (From::Peers, "aligned", "nodes"),
        ] {
            let peers = match from {
                From::Peers if peers.is_empty() => continue,
                From::Peers => &peers[..],
                _ => &[],
            };
            let cached = from != From::Host;
            let options = json!({"presample": 0, "peers": peers, "access": access, "lines": in_flight, "order": order});
            let name = format!("{from:?}").to_lowercase();
            let (at, to) = (place.clone(), place.clone());
            let context = TransferringContext { options, ..TransferringContext::new(Arc::clone(&dataset), at, to) };
            let mut operator = ZeroCopy::new(&context)?;
            if cached {
                // All rows but one: with all of them nothing is gathered.
                let mut hotness = vec![1.0; num_nodes];
                hotness[num_nodes - 1] = 0.0;
                operator.gather().fill_cache(&hotness, u64::MAX)?;
            }
            let (mut gathers, mut copies) = (Vec::new(), Vec::new());
            for round in 0..=ROUNDS {
                let gather = gather(&mut operator, &stream, &nodes)?;
                let copy = if cached { copy_on_device(&stream)? } else { copy_from_host(&stream)? };
                // The first round warms up.
                if round > 0 {
                    gathers.push(nodes.len() as f64 * row_bytes as f64 / gather.as_secs_f64() / 1e9);
                    copies.push(BATCH as f64 / copy.as_secs_f64() / 1e9);
                }
            }
            let ([min, gather, max], [_, copy, _]) = (spread(&mut gathers), spread(&mut copies));
            // Cached rows are packed like those of the host, so both touch about as many units.
            let [sectors, lines] = [SECTOR, LINE].map(|unit| gather * touched(&nodes, row_bytes, unit));
            if json {
                let line = json!({"what": "gather", "unit": "GB/s", "row_bytes": row_bytes, "from": name, "access": access, "order": order, "peers": peers,
                    "table": table_bytes, "lines_in_flight": in_flight, "median": gather, "all": gathers, "sectors": sectors, "lines": lines, "block_copy": copies, "device": format!("{device:?}")});
                println!("{line}");
            } else {
                println!(
                    "{row_bytes:<10} {name:<9} {access:<8} {order:<5} {gather:7.1} ({min:.1}-{max:.1})   {sectors:7.1} {lines:7.1} {copy:12.1} {:7.2}",
                    lines / copy
                );
            }
        }
    }
    Ok(())
}

/// Memory of the gathered rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Host,
    /// All in the memory of the gathering device.
    Device,
    /// Round-robin in the memory of the gathering device and of each accessible one.
    Peers,
}

/// The other devices of this machine that `device` has peer access to.
fn accessible(device: &Device) -> Result<Vec<String>, Failure> {
    let others = accelerators(&Machine::probe()).into_iter().filter(|other| other.place != *device.place());
    let mut places = Vec::new();
    for other in others {
        if device.reaches(&Device::open(&other.place, &ZERO_COPY_KEY)?)? {
            places.push(other.place.to_string());
        }
    }
    Ok(places)
}

/// Ratio of the bytes of units that the rows of `nodes` touch to the rows' own; the table begins with a unit.
fn touched(nodes: &[u32], row_bytes: usize, unit: usize) -> f64 {
    let units = |&node: &u32| {
        let first = node as usize * row_bytes;
        (first + row_bytes).div_ceil(unit) - first / unit
    };
    (nodes.iter().map(units).sum::<usize>() * unit) as f64 / (nodes.len() * row_bytes) as f64
}

/// A graph without edges, with features in huge pages, like those of an opened dataset.
fn table(num_nodes: usize, row_bytes: usize) -> Result<Dataset, Failure> {
    let mut pages = Pages::zeroed(num_nodes * row_bytes)?;
    pages.fill(1);
    Ok(Dataset {
        features: Some(FeatureMatrix::U8 {
            data: Array::from_pages(pages).expect("bytes need no alignment"),
            dim: row_bytes,
        }),
        ..Dataset::new("table", Topology::new(vec![0; num_nodes + 1], vec![], None)?)
    })
}

/// `len` nodes in random order.
fn scattered(num_nodes: usize, len: usize) -> Vec<u32> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % num_nodes as u64)
        .map(|v| v as u32)
        .collect()
}

fn gather(operator: &mut ZeroCopy, stream: &Stream, nodes: &[u32]) -> Result<Duration, Failure> {
    let batch = HostBatch { input_nodes: nodes.to_vec(), ..Default::default() };
    let batch = CudaBatch::upload(stream, &batch)?;
    stream.synchronize()?;
    let (batch, took) = operator.transfer(MiniBatch::Device(Box::new(batch)))?.wait()?;
    drop(batch);
    Ok(took)
}

fn copy_from_host(stream: &Stream) -> Result<Duration, Failure> {
    let (host, mut device) = (Pinned::<u8>::new(stream.device(), BATCH)?, Buffer::new(stream, BATCH)?);
    let start = stream.record(true)?;
    stream.copy(&host, 0..BATCH, &mut device, 0)?;
    elapsed(stream, &start)
}

/// A copy reads and writes as many bytes as a gather.
fn copy_on_device(stream: &Stream) -> Result<Duration, Failure> {
    let (from, mut to) = (Buffer::<u8>::new(stream, BATCH)?, Buffer::new(stream, BATCH)?);
    let start = stream.record(true)?;
    stream.copy(&from, 0..BATCH, &mut to, 0)?;
    elapsed(stream, &start)
}

fn elapsed(stream: &Stream, start: &morphgl_cuda::Event) -> Result<Duration, Failure> {
    let end = stream.record(true)?;
    end.synchronize()?;
    Ok(end.elapsed(start)?)
}

fn spread(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}
