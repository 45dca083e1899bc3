//! GEMMs against f64, on the emulated device.

use morphgl_cuda::{CUDA, Device};
use morphgl_registry::{Hardware, Key, Machine, Phase};
use proptest::prelude::*;

use super::*;

const KEY: Key = Key::new(Phase::Training, Hardware::new(&[CUDA]), "Tests");

fn stream() -> Option<Stream> {
    morphgl_cuda::probe(&Machine::probe()).ok()?;
    let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("a device");
    Some(Stream::new(&device, false).expect("a stream"))
}

/// Random values of four powers of ten up to 10, a fifth of them 0.
fn values(len: usize, seed: u64) -> Vec<f32> {
    let word = |i: usize| {
        let mut x = (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 29)
    };
    let value = |bits: u64| match bits % 5 {
        0 => 0.0,
        kind => {
            (bits >> 40) as f32 / (1 << 24) as f32
                * if bits & 64 == 0 { 1.0 } else { -1.0 }
                * 10f32.powi(kind as i32 - 3)
        }
    };
    (0..len).map(|i| value(word(i))).collect()
}

/// Element (i, j) of a factor of `rows` x `columns`.
fn at(values: &[f32], [rows, columns]: [usize; 2], transpose: Transpose, i: usize, j: usize) -> f64 {
    f64::from(if transpose == Transpose::Yes { values[j * rows + i] } else { values[i * columns + j] })
}

/// Whether the number of matrices is given, and the error of each is printed.
fn published() -> bool {
    std::env::var_os("MORPHGL_TEST_GEMMS").is_some()
}

#[allow(clippy::print_stdout, reason = "errors are published")]
fn check([m, n, k]: [usize; 3], transpose: [Transpose; 2], add: bool, seed: u64, multiprocessors: usize) {
    let Some(stream) = stream() else { return };
    let kernels = Kernels::new(stream.device()).expect("kernels");
    let (a, b, before) = (values(m * k, seed), values(k * n, seed + 1), values(m * n, seed + 2));
    // As parameters of a model, which lie one behind another: at any multiple of 4 bytes.
    let [skip_a, skip_b] = [seed as usize % 5, seed as usize / 5 % 5];
    let behind =
        |skip: usize, values: &[f32]| Buffer::of(&stream, &[&vec![f32::NAN; skip], values].concat()).expect("memory");
    let (left, right, out) = (behind(skip_a, &a), behind(skip_b, &b), behind(0, &before));
    let factor = |buffer, skip: usize, transpose| {
        let floats = Floats::from(buffer);
        (floats.part(skip..floats.len()), transpose)
    };
    let (left, right) = (factor(&left, skip_a, transpose[0]), factor(&right, skip_b, transpose[1]));
    multiply(&stream, &kernels, multiprocessors, [m, n, k], left, right, ((&out).into(), add)).expect("no failure");
    let made = out.to_vec(&stream).expect("no failure");
    // Largest errors beside f64, in parts of the sum of the products' sizes: ours, and those of f32 sums in order.
    let (mut ours, mut plain) = (0f64, 0f64);
    for i in 0..m {
        for j in 0..n {
            let factors = (0..k).map(|d| (at(&a, [m, k], transpose[0], i, d), at(&b, [k, n], transpose[1], d, j)));
            let begin = if add { before[i * n + j] } else { 0.0 };
            let (mut sum, mut size, mut in_order) = (f64::from(begin), f64::from(begin).abs(), begin);
            for (x, y) in factors {
                (sum, size) = (sum + x * y, size + (x * y).abs());
                in_order = (x as f32).mul_add(y as f32, in_order);
            }
            let error = |made: f32| (f64::from(made) - sum).abs() / size.max(f64::MIN_POSITIVE);
            (ours, plain) = (ours.max(error(made[i * n + j])), plain.max(error(in_order)));
        }
    }
    // Each factor's halves are up to a unit in the last place of f32 away from it, and the product of the lower ones is up to two.
    let bound = 4.0 * f64::from(f32::EPSILON) + 2.0 * plain;
    if published() {
        let units = |error: f64| error / f64::from(f32::EPSILON);
        println!("{m} x {n} x {k}: {:.3} units, f32 sums in order {:.3}", units(ours), units(plain));
    }
    assert!(ours <= bound, "{m} x {n} x {k}, {transpose:?}: {ours:e} above {bound:e}");
}

const WAYS: [[Transpose; 2]; 3] =
    [[Transpose::No, Transpose::No], [Transpose::Yes, Transpose::No], [Transpose::No, Transpose::Yes]];

/// Number of random shapes: that of MORPHGL_TEST_GEMMS, or a few.
fn cases() -> u32 {
    std::env::var("MORPHGL_TEST_GEMMS").ok().and_then(|number| number.parse().ok()).unwrap_or(30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn the_error_is_that_of_halves_and_of_f32_sums(
        m in 1usize..150, n in 1usize..80, k in 1usize..70, way in 0usize..3, add in any::<bool>(), seed in any::<u32>(),
    ) {
        check([m, n, k], WAYS[way], add, u64::from(seed), 1);
    }
}

/// A depth in parts, as of the gradient of a weight, whose last part is shorter.
#[test]
fn parts_of_the_depth_are_added_in_order() {
    for (way, multiprocessors) in [(1, 1), (0, 4), (2, 2)] {
        for add in [false, true] {
            check([20, 9, 1100], WAYS[way], add, 3, multiprocessors);
        }
    }
}

#[test]
fn parts_fill_the_device_and_cover_the_depth() {
    for multiprocessors in [1, 4, 132] {
        for tiles in [1, 8, 300, 2_000] {
            for k in [1, 15, 16, 255, 512, 1_000, 46_700] {
                let (parts, depth) = divide(multiprocessors, tiles, k);
                assert!(parts * depth >= k && (parts - 1) * depth < k, "{parts} parts of {depth} for {k}");
                assert!(parts == 1 || parts <= MOST_PARTS && depth >= LEAST_DEPTH && depth.is_multiple_of(16));
                let full = parts * tiles * 2 >= BLOCKS_PER_MULTIPROCESSOR * multiprocessors;
                assert!(
                    full || parts == MOST_PARTS || depth < 2 * LEAST_DEPTH,
                    "{parts} parts of {depth}, {tiles} tiles"
                );
            }
        }
    }
}
