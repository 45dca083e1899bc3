use morphgl_cuda::{Buffer, Device, Pinned, Precision};
use morphgl_model_core::{Dropout, DropoutSite};

use super::*;
use crate::KEY;
use crate::gpu::MaskNodes;

fn gpu() -> Gpu {
    Gpu::new(&Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is emulated"), Some(Precision::F32))
        .expect("a stream")
}

fn download(gpu: &mut Gpu, region: Region) -> Vec<f32> {
    let mut host = Pinned::new(gpu.stream.device(), region.len()).expect("memory");
    gpu.download(region, &mut host).expect("a copy");
    gpu.stream.synchronize().expect("no failure");
    host.to_vec()
}

/// Masks equal the spec's bit for bit, also for rows that are no multiple of a group, and by the keys of a reordered graph.
#[test]
fn masks_are_the_specs() {
    let mut gpu = gpu();
    let keys: Vec<u32> = (0..100).map(|node| node * 37 % 100).collect();
    let on_device = |gpu: &Gpu, ids: &[u32]| {
        let buffer = Buffer::of(&gpu.stream, ids).expect("memory");
        gpu.stream.synchronize().expect("no failure");
        buffer
    };
    let keys_buffer = on_device(&gpu, &keys);
    for (rows, columns, probability) in
        [(1, 1, 0.5), (1, 7, 0.5), (8, 8, 0.3), (5, 64, 0.3), (9, 12, 0.5), (59, 17, 0.9)]
    {
        for reordered in [false, true] {
            let dropout = Dropout::new(u64::MAX / 7, 3, 9, 2, DropoutSite::Hidden, probability).expect("it drops");
            let nodes: Vec<u32> = (0..rows as u32).map(|row| (row * 13 + 5) % 100).collect();
            let nodes_buffer = on_device(&gpu, &nodes);
            let keys_buffer = reordered.then_some(&keys_buffer);
            let mask = Mask::new(Some(dropout), MaskNodes { nodes: &nodes_buffer, keys: keys_buffer });
            let values: Vec<f32> = (0..rows * columns).map(|i| 1.0 + i as f32).collect();
            let pinned = Pinned::of(gpu.stream.device(), &values).expect("memory");
            let [region, output] = [gpu.upload(&pinned), gpu.upload(&pinned)].map(|p| p.expect("memory"));
            let stored = InputRows::packed(region, Dtype::F32);
            let wide = widen(&mut gpu, stored, [rows, columns], mask).expect("a launch");
            epilogue(&gpu, region, columns, None, None, mask).expect("a launch");
            epilogue_backward(&mut gpu, output, columns, None, (output, None, mask)).expect("a launch");
            let mut expected = values;
            let of_masks: Vec<u32> =
                nodes.iter().map(|&node| if reordered { keys[node as usize] } else { node }).collect();
            dropout.apply(&of_masks, &mut expected);
            for found in [region, wide, output] {
                assert_eq!(download(&mut gpu, found), expected, "{rows} rows of {columns}, {probability}, {reordered}");
            }
        }
    }
}

#[test]
fn columns_are_summed() {
    let mut gpu = gpu();
    for (rows, columns) in [(1, 1), (3, 40), (700, 5), (20_000, 2)] {
        // Small integers: the sum is exact in any order.
        let values: Vec<f32> = (0..rows * columns).map(|i| (i * 7 % 5) as f32).collect();
        let region = gpu.upload(&Pinned::of(gpu.stream.device(), &values).expect("memory")).expect("memory");
        let out = gpu.take(columns).expect("memory");
        column_sums(&mut gpu, region, columns, Factors::default(), out).expect("a launch");
        let expected: Vec<f32> = (0..columns).map(|c| values[c..].iter().step_by(columns).sum()).collect();
        assert_eq!(download(&mut gpu, out), expected, "{rows} x {columns}");
    }
}
