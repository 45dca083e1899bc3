use morphgl_cuda::{Device, Pinned};
use morphgl_model_spec::{Dropout, DropoutSite};

use super::*;
use crate::KEY;

fn gpu() -> Gpu {
    Gpu::new(&Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is emulated"), Default::default())
        .expect("a stream")
}

fn download(gpu: &mut Gpu, region: Region) -> Vec<f32> {
    let mut host = Pinned::new(gpu.stream.device(), region.len()).expect("memory");
    gpu.download(region, &mut host).expect("a copy");
    gpu.stream.synchronize().expect("no failure");
    host.to_vec()
}

/// Masks equal the spec's bit for bit, also for lengths that are no multiple of a group.
#[test]
fn masks_are_the_specs() {
    let mut gpu = gpu();
    for (len, columns, probability) in [(1, 1, 0.5), (7, 7, 0.5), (64, 8, 0.3), (1003, 17, 0.9)] {
        let dropout = Dropout::new(u64::MAX / 7, 3, 9, 2, DropoutSite::Hidden, probability).expect("it drops");
        let values: Vec<f32> = (0..len).map(|i| 1.0 + i as f32).collect();
        let pinned = Pinned::of(gpu.stream.device(), &values).expect("memory");
        let [region, output] = [gpu.upload(&pinned), gpu.upload(&pinned)].map(|p| p.expect("memory"));
        let wide = widen(&mut gpu, Rows { words: region.into(), dtype: Dtype::F32 }, len, Mask::new(Some(dropout)));
        let wide = wide.expect("a launch");
        epilogue(&gpu, region, columns, None, None, Mask::new(Some(dropout))).expect("a launch");
        let end = (output, None, Mask::new(Some(dropout)));
        epilogue_backward(&mut gpu, output, columns, None, end).expect("a launch");
        let mut expected = values;
        dropout.apply(0, &mut expected);
        for found in [region, wide, output] {
            assert_eq!(download(&mut gpu, found), expected, "{len} elements, {probability}");
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
