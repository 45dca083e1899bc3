use super::*;

#[test]
fn every_field_has_its_own_bits() {
    let batch = BatchId { epoch: 7, index: 6 };
    let row = Row { seed: 0, batch, hop: 63, node: 5, edge_type: 0 };
    assert_eq!(row.counter(Stream::PermutationRetry, (1 << 22) - 1), [0x3FFF_FFFF, 5, 6, 7]);
    let row = Row { hop: 1, node: u32::MAX, ..row };
    assert_eq!(row.counter(Stream::SamplingRetry, 2), [0x1040_0002, u32::MAX, 6, 7]);
    let row = Row { edge_type: 0xFEDC, ..row };
    assert_eq!(row.counter(Stream::SamplingRetry, 2), [0x1040_0002, u32::MAX, 6, 0xFEDC_0007]);
}

#[test]
fn a_row_draws_from_its_counters() {
    let row = Row { seed: 9, batch: BatchId { epoch: 1, index: 2 }, hop: 3, node: 4, edge_type: 0 };
    let blocks: [[u32; 4]; 2] = row.blocks(Stream::Sampling, 5);
    assert_eq!(blocks[1], row.block(Stream::Sampling, 6));
}
