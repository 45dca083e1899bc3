//! All-reduce on one device: its buffers, and the calls in their order (reduce-scatter, then all-gather).

use morphgl_cuda::{Buffer, Communicator, Device, Event, Pinned, Shape, Stream};
use morphgl_registry::{Key, Place, Result};

/// Threads of a block of the kernel.
const THREADS: u32 = 128;

morphgl_cuda::kernels! {
    struct Kernels {
        ADD = "kernels/add.cu" { group_add }
    }
}

/// One device's end of all-reduces.
#[derive(Debug)]
pub(crate) struct AllReduce {
    pub(crate) communicator: Communicator,
    kernels: Kernels,
    /// `None` before the first all-reduce.
    memory: Option<Memory>,
}

/// Buffers for as many values as the ranks' parts hold.
#[derive(Debug)]
struct Memory {
    /// Elements of a part.
    part: usize,
    /// Before an all-reduce this rank's values, after it the sums over all ranks; in host memory.
    host: Pinned<f32>,
    /// The same on the device.
    values: Buffer<f32>,
    /// The part that this rank adds, of every rank.
    parts: Buffer<f32>,
    /// Its sums.
    sums: Buffer<f32>,
}

impl Memory {
    fn new(stream: &Stream, ranks: usize, part: usize) -> Result<Self> {
        let buffer = |len: usize| Buffer::new(stream, len);
        let mut host = Pinned::new(stream.device(), ranks * part)?;
        host.fill(0.0);
        Ok(Self { part, host, values: buffer(ranks * part)?, parts: buffer(ranks * part)?, sums: buffer(part)? })
    }
}

impl AllReduce {
    /// The ends of all devices, by rank. NCCL's connections are set up here, by one thread, so that none waits for another; the
    /// sums of a first all-reduce are checked.
    ///
    /// # Errors
    ///
    /// No such device, no NCCL, or a failure of it.
    pub(crate) fn group(trainers: &[(Key, Place)]) -> Result<Vec<Self>> {
        let streams = trainers.iter().map(|(key, place)| Stream::new(&Device::open(place, key)?, true));
        let communicators = Communicator::group(streams.collect::<Result<_>>()?)?;
        let end = |communicator: Communicator| -> Result<Self> {
            let kernels = Kernels::load(communicator.stream().device())?;
            Ok(Self { communicator, kernels, memory: None })
        };
        let mut all: Vec<Self> = communicators.into_iter().map(end).collect::<Result<_>>()?;
        if let Err(e) = connect(&mut all) {
            all.iter().for_each(|end| end.communicator.abort());
            return Err(e);
        }
        Ok(all)
    }

    /// Copies the values to the device; parts beyond their end are 0.
    fn upload(&mut self, values: &[f32]) -> Result<()> {
        let (stream, ranks) = (self.communicator.stream(), self.communicator.size());
        let part = values.len().div_ceil(ranks);
        if self.memory.as_ref().is_none_or(|memory| memory.part != part) {
            self.memory = Some(Memory::new(stream, ranks, part)?);
        }
        let memory = self.memory.as_mut().expect("made above");
        memory.host[..values.len()].copy_from_slice(values);
        memory.host[values.len()..].fill(0.0);
        stream.copy(&memory.host, 0..ranks * part, &mut memory.values, 0)
    }

    /// First half of the reduce-scatter: sends each other rank the part of the values that it adds for all, and receives this
    /// rank's part of theirs.
    fn scatter(&mut self) -> Result<()> {
        let memory = self.memory.as_mut().expect("values were uploaded");
        self.communicator.exchange_parts(&memory.values, &mut memory.parts, memory.part)
    }

    /// Second half of the reduce-scatter: adds this rank's part in the order of ranks.
    fn reduce(&mut self) -> Result<()> {
        let memory = self.memory.as_mut().expect("values were uploaded");
        let (len, ranks) = (memory.part as u64, self.communicator.size() as u32);
        let arguments = &mut [(&memory.parts).into(), (&mut memory.sums).into(), len.into(), ranks.into()];
        let shape = Shape::covering(memory.part, THREADS);
        // SAFETY: the arguments are the kernel's; the parts of all ranks have `len` elements each, and the sums as many.
        unsafe { self.communicator.stream().launch(&self.kernels.group_add, shape, arguments) }
    }

    /// All-gather of the sums.
    fn gather(&mut self) -> Result<()> {
        let memory = self.memory.as_mut().expect("values were uploaded");
        self.communicator.all_gather(&memory.sums, &mut memory.values, memory.part)
    }

    /// Copies the sums to the host; they are there after the event.
    fn download(&mut self) -> Result<Event> {
        let memory = self.memory.as_mut().expect("values were uploaded");
        let stream = self.communicator.stream();
        stream.copy(&memory.values, 0..memory.values.len(), &mut memory.host, 0)?;
        stream.record(false)
    }

    /// Queues the all-reduce of values that are not empty; [`AllReduce::sums`] has their sums after the event.
    pub(crate) fn queue(&mut self, values: &[f32]) -> Result<Event> {
        self.upload(values)?;
        self.scatter()?;
        self.reduce()?;
        self.gather()?;
        self.download()
    }

    /// The first `len` sums; the event of [`AllReduce::queue`] has happened.
    pub(crate) fn sums(&self, len: usize) -> &[f32] {
        &self.memory.as_ref().expect("values were added").host[..len]
    }

    /// Bytes that an all-reduce sends to other devices.
    pub(crate) fn bytes_sent(&self) -> u64 {
        let part = self.memory.as_ref().map_or(0, |memory| memory.part);
        (2 * part * size_of::<f32>() * (self.communicator.size() - 1)) as u64
    }
}

/// Checks an all-reduce of known values over all devices, with all calls made by the calling thread.
fn connect(all: &mut [AllReduce]) -> Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let (size, calls) = (first.communicator.size(), first.communicator.calls());
    let own = |rank: usize| (0..size).map(|i| (1 + rank * size + i) as f32).collect::<Vec<_>>();
    let expected: Vec<f32> = (0..size).map(|i| (0..size).map(|rank| own(rank)[i]).sum()).collect();
    all.iter_mut().enumerate().try_for_each(|(rank, end)| end.upload(&own(rank)))?;
    calls.together(|| all.iter_mut().try_for_each(AllReduce::scatter))?;
    all.iter_mut().try_for_each(AllReduce::reduce)?;
    calls.together(|| all.iter_mut().try_for_each(AllReduce::gather))?;
    let events = all.iter_mut().map(AllReduce::download).collect::<Result<Vec<_>>>()?;
    events.iter().try_for_each(Event::synchronize)?;
    for end in all {
        end.communicator.check()?;
        let (found, device) = (end.sums(size), end.communicator.stream().device().place());
        if found != expected {
            let why = format!("NCCL adds {found:?} instead of {expected:?}; train without it (--exchange host)");
            return Err(morphgl_registry::Error::failed(device, why));
        }
    }
    Ok(())
}
