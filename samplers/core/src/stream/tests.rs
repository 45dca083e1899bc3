use super::*;

#[test]
fn every_field_has_its_own_bits() {
    let batch = BatchId { epoch: 7, index: 6 };
    let counter = Counter { stream: Stream::PermutationRetry, hop: 63, block: (1 << 22) - 1, node: 5, batch };
    assert_eq!(counter.words(), [0x3FFF_FFFF, 5, 6, 7]);
    let counter = Counter { stream: Stream::SamplingRetry, hop: 1, block: 2, node: u32::MAX, batch };
    assert_eq!(counter.words(), [0x1040_0002, u32::MAX, 6, 7]);
}

#[test]
fn a_row_draws_from_its_counters() {
    let row = Row { seed: 9, batch: BatchId { epoch: 1, index: 2 }, hop: 3, node: 4 };
    let blocks: [[u32; 4]; 2] = row.draws(5);
    assert_eq!(blocks[1], row.counter(Stream::Sampling, 6).draw(9));
}
