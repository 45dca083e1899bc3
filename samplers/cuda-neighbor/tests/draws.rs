//! Draws with bounds beyond any graph, where up to every second word is rejected, equal those of the host.

mod common;

use morphgl_batching_cuda_neighbor::NEIGHBOR;
use morphgl_cuda::{Buffer, Device, Pinned, Shape, Stream};
use morphgl_registry::BatchId;
use morphgl_sampler_core::{Row, Stream as Words, bounded};

morphgl_cuda::module! {
    static DRAWS = "tests/draws.cu" { draws_of_a_row }
}

#[test]
fn rejected_words_are_replaced_as_on_the_host() {
    if !common::available() {
        return;
    }
    let device = Device::open(&"cuda:0".parse().expect("a place"), &NEIGHBOR.key).expect("the device is available");
    let stream = Stream::new(&device, false).expect("a stream");
    let kernel = DRAWS.kernel(&device, "draws_of_a_row").expect("a kernel");
    let row = Row {
        seed: 0xFEDC_BA98_7654_3210,
        batch: BatchId { epoch: 5, index: 77 },
        hop: 63,
        node: 0x8000_0001,
        edge_type: 0,
    };
    let last: Vec<u32> =
        (0..3000u32).map(|i| [1 << 31, u32::MAX - 1, (1 << 31) + i, 3 << 30, i][i as usize % 5]).collect();
    let len = last.len() as u32;
    let mut bounds = Buffer::new(&stream, last.len()).expect("memory");
    stream.copy(&Pinned::of(&device, &last).expect("memory"), 0..last.len(), &mut bounds, 0).expect("a copy");
    let mut out = Buffer::<u32>::new(&stream, last.len()).expect("memory");
    let BatchId { epoch, index } = row.batch;
    let (hop, node, seed) = (row.hop.into(), row.node.into(), row.seed.into());
    let mut arguments = [(&bounds).into(), len.into(), hop, node, index.into(), epoch.into(), seed, (&mut out).into()];
    // SAFETY: the arguments are the kernel's, and both buffers have `len` elements.
    unsafe { stream.launch(&kernel, Shape::covering(last.len(), 128), &mut arguments) }.expect("a launch");
    let mut drawn = Pinned::new(&device, last.len()).expect("memory");
    stream.copy(&out, 0..last.len(), &mut drawn, 0).expect("a copy");
    stream.synchronize().expect("no failure");
    let mut rejected = 0;
    for (i, (&last, &drawn)) in last.iter().zip(&*drawn).enumerate() {
        let word = row.block(Words::Sampling, i as u32 / 4)[i % 4];
        let expected = bounded(last + 1, word, |r| {
            rejected += 1;
            row.block(Words::SamplingRetry, i as u32 * 64 + r / 4)[r as usize % 4]
        });
        assert_eq!(drawn, expected, "draw {i} of 0..={last}");
    }
    assert!(rejected > 500, "{rejected} words were rejected");
}
