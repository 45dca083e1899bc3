//! Gathers of random rows of a table in host memory, by kind of memory, size of the table, order of the ids and grid.

use std::sync::Arc;
use std::time::{Duration, Instant};

use morphgl_cuda::{Buffer, Device, Event, HostMemory, Kernel, Mapped, Pinned, Shape, Stream};
use morphgl_platform::{Pages, splitmix64};
use morphgl_registry::Machine;
use serde_json::{Value, json};

morphgl_cuda::module! {
    static TRANSLATION = "benches/translation.cu" { translation_gather }
}

pub(crate) type Failure = Box<dyn std::error::Error>;

/// Bytes of the address ranges that ids are put together by: a huge page.
const BUCKET: usize = 2 << 20;
/// Bytes of a block copy, the measure of the link.
const COPY: usize = 256 << 20;
/// Rows that are compared with the table after each configuration's first gather, spread over all of them.
const COMPARED: usize = 8192;

/// Where the table lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory {
    /// Anonymous pages, huge ones where the system has them, registered in place: how features of a dataset lie.
    Registered,
    Allocated(HostMemory),
}

pub(crate) const MEMORIES: [(&str, Memory); 3] = [
    ("registered", Memory::Registered),
    ("on_node", Memory::Allocated(HostMemory::OnNode)),
    ("page_locked", Memory::Allocated(HostMemory::PageLocked)),
];
pub(crate) const ORDERS: [&str; 3] = ["random", "bucket", "sorted"];

/// What is measured; the first values of each list are measured first.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) row_bytes: Vec<usize>,
    /// Bytes of the tables; each is the beginning of the largest.
    pub(crate) tables: Vec<usize>,
    pub(crate) blocks: Vec<usize>,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Rows of a gather.
    pub(crate) ids: usize,
    pub(crate) rounds: usize,
    /// Seconds after which no configuration begins, in equal parts for the kinds of memory.
    pub(crate) seconds: f64,
}

/// Measures every configuration of the plan, and gives each result to `print` at once. A kind of memory that cannot be had is a
/// line with the error.
///
/// # Errors
///
/// A gathered row is wrong, or the device fails.
pub(crate) fn run(device: &Device, plan: &Plan, print: &mut dyn FnMut(Value)) -> Result<(), Failure> {
    let (stream, kernel) = (Stream::new(device, false)?, TRANSLATION.kernel(device, "translation_gather")?);
    if let Some(odd) = plan.row_bytes.iter().find(|bytes| !bytes.is_multiple_of(8) || **bytes == 0) {
        return Err(format!("rows of {odd} bytes: give multiples of 8").into());
    }
    let (start, kinds) = (Instant::now(), MEMORIES.len() as f64);
    for (i, (name, memory)) in MEMORIES.into_iter().enumerate() {
        let end = plan.seconds * (i + 1) as f64 / kinds;
        // A table takes at most half of what is free, so that nothing else of the machine is pushed out.
        let free = usize::try_from(Machine::probe().available_bytes / 2).unwrap_or(usize::MAX);
        let tables: Vec<usize> = plan.tables.iter().copied().filter(|bytes| *bytes <= free).collect();
        let Some(&largest) = tables.iter().max() else {
            print(
                json!({"what": "translation memory", "memory": name, "error": format!("{free} bytes are half of what is free")}),
            );
            continue;
        };
        let began = Instant::now();
        let table = match table(device, memory, largest) {
            Ok(table) => table,
            Err(error) => {
                print(
                    json!({"what": "translation memory", "memory": name, "bytes": largest, "error": error.to_string()}),
                );
                continue;
            }
        };
        let (seconds, huge) = (began.elapsed().as_secs_f64(), huge_page_bytes());
        let copy: Vec<f64> = (0..=plan.rounds).map(|_| block_copy(&stream, &table)).collect::<Result<_, _>>()?;
        print(json!({"what": "translation memory", "memory": name, "bytes": largest, "seconds": seconds,
            "anonymous_huge_page_bytes": huge, "left_out_tables": plan.tables.len() - tables.len(),
            "block_copy_gb_per_s": copy[1..], "device": format!("{device:?}")}));
        let mut left_out = 0;
        for &bytes in &tables {
            for &row_bytes in &plan.row_bytes {
                let mut gathers = Gathers::new(&stream, &kernel, (&table, bytes), row_bytes, plan)?;
                for order in ORDERS {
                    if start.elapsed().as_secs_f64() > end {
                        left_out += plan.blocks.len();
                        continue;
                    }
                    gathers.order(order)?;
                    for &blocks in &plan.blocks {
                        let all = gathers.measure(blocks)?;
                        print(json!({"what": "translation", "unit": "GB/s", "memory": name, "row_bytes": row_bytes,
                            "table": bytes, "order": order, "blocks": blocks, "threads": plan.threads,
                            "ids": plan.ids, "median": median(&all), "all": all}));
                    }
                }
            }
        }
        if left_out > 0 {
            print(json!({"what": "translation memory", "memory": name, "left_out": left_out}));
        }
    }
    Ok(())
}

/// The value of each eight bytes of a table.
fn word(index: u64) -> u64 {
    index.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ index
}

/// Writes the table's values, on all cores.
fn fill(words: &mut [u64]) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let each = words.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (i, part) in words.chunks_mut(each).enumerate() {
            let first = (i * each) as u64;
            scope.spawn(move || part.iter_mut().zip(first..).for_each(|(value, index)| *value = word(index)));
        }
    });
}

fn table(device: &Device, memory: Memory, bytes: usize) -> Result<Mapped<u64>, Failure> {
    let words = bytes / 8;
    let Memory::Allocated(memory) = memory else {
        let mut pages = Pages::zeroed(words * 8)?;
        fill(bytemuck::cast_slice_mut(&mut pages));
        let pages = Arc::new(pages);
        // SAFETY: a clone of the owner keeps the pages, which are never moved or written.
        return Ok(unsafe { Mapped::new(device, Arc::clone(&pages) as _, bytemuck::cast_slice(&pages)) }?);
    };
    Ok(Mapped::allocate(device, memory, words, fill)?)
}

/// Bytes of this process's anonymous memory that lie in huge pages, where the system says.
fn huge_page_bytes() -> Option<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

fn block_copy(stream: &Stream, table: &Mapped<u64>) -> Result<f64, Failure> {
    let words = table.len().min(COPY / 8);
    let mut to = Buffer::new(stream, words)?;
    let start = stream.record(true)?;
    stream.copy(table, 0..words, &mut to, 0)?;
    Ok((words * 8) as f64 / elapsed(stream, &start)?.as_secs_f64() / 1e9)
}

fn elapsed(stream: &Stream, start: &Event) -> Result<Duration, Failure> {
    let end = stream.record(true)?;
    end.synchronize()?;
    // The emulated device's clock may stand still between two events.
    Ok(end.elapsed(start)?.max(Duration::from_nanos(1)))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The gathers of one table and length of rows.
struct Gathers<'a> {
    stream: &'a Stream,
    kernel: &'a Kernel,
    table: &'a Mapped<u64>,
    plan: &'a Plan,
    row_bytes: usize,
    /// The ids as drawn: row `i` of the output is that of `ids[i]`, whatever the order.
    ids: Vec<u32>,
    /// On the device: the ids in the order in which they are gathered, and the row of the output of each.
    ordered: Buffer<u32>,
    places: Buffer<u32>,
    out: Buffer<u8>,
    host: Pinned<u8>,
}

impl<'a> Gathers<'a> {
    fn new(
        stream: &'a Stream,
        kernel: &'a Kernel,
        (table, bytes): (&'a Mapped<u64>, usize),
        row_bytes: usize,
        plan: &'a Plan,
    ) -> Result<Self, Failure> {
        let rows = (bytes / row_bytes) as u64;
        if rows == 0 || rows > u64::from(u32::MAX) {
            return Err(format!("a table of {bytes} bytes has {rows} rows of {row_bytes}").into());
        }
        let ids: Vec<u32> = (0..plan.ids as u64).map(|i| (splitmix64(i) % rows) as u32).collect();
        let (ordered, places) = (Buffer::new(stream, 0)?, Buffer::new(stream, 0)?);
        let out = Buffer::new(stream, ids.len() * row_bytes)?;
        let host = Pinned::new(stream.device(), ids.len() * row_bytes)?;
        Ok(Self { stream, kernel, table, plan, row_bytes, ids, ordered, places, out, host })
    }

    /// Puts the ids in an order.
    fn order(&mut self, order: &str) -> Result<(), Failure> {
        let mut places: Vec<u32> = (0..self.ids.len() as u32).collect();
        let row = |place: &u32| self.ids[*place as usize] as usize;
        match order {
            "bucket" => places.sort_by_key(|place| row(place) * self.row_bytes / BUCKET),
            "sorted" => places.sort_by_key(row),
            _ => {}
        }
        let ordered: Vec<u32> = places.iter().map(|place| self.ids[*place as usize]).collect();
        (self.ordered, self.places) = (Buffer::of(self.stream, &ordered)?, Buffer::of(self.stream, &places)?);
        Ok(())
    }

    /// GB/s of rows, once per round; the first gather, whose rows are compared, is not counted.
    fn measure(&mut self, blocks: usize) -> Result<Vec<f64>, Failure> {
        self.stream.fill(&mut self.out, 0xee)?;
        self.gather(blocks)?;
        self.compare()?;
        let bytes = (self.ids.len() * self.row_bytes) as f64;
        let rounds = 0..self.plan.rounds;
        rounds.map(|_| Ok(bytes / self.gather(blocks)?.as_secs_f64() / 1e9)).collect()
    }

    fn gather(&mut self, blocks: usize) -> Result<Duration, Failure> {
        let start = self.stream.record(true)?;
        let arguments = &mut [
            self.table.into(),
            (&self.ordered).into(),
            (&self.places).into(),
            (self.ids.len() as u32).into(),
            (self.row_bytes as u32).into(),
            (&mut self.out).into(),
        ];
        // SAFETY: the arguments are the kernel's; ids are rows of the table, and places rows of the output.
        unsafe { self.stream.launch(self.kernel, Shape::linear(blocks, self.plan.threads), arguments) }?;
        elapsed(self.stream, &start)
    }

    fn compare(&mut self) -> Result<(), Failure> {
        self.stream.copy(&self.out, 0..self.out.len(), &mut self.host, 0)?;
        self.stream.synchronize()?;
        let step = self.ids.len().div_ceil(COMPARED).max(1);
        for i in (0..self.ids.len()).step_by(step) {
            let row = &self.host[i * self.row_bytes..][..self.row_bytes];
            let first = u64::from(self.ids[i]) * self.row_bytes as u64 / 8;
            if !row.chunks_exact(8).zip(first..).all(|(bytes, index)| bytes == word(index).to_ne_bytes()) {
                return Err(
                    format!("row {} is wrong, of a table of {} bytes", self.ids[i], self.table.len() * 8).into()
                );
            }
        }
        Ok(())
    }
}
