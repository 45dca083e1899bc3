use super::{Blocks, lines_in_flight};

#[test]
fn host_reads_in_flight_do_not_depend_on_the_hit_rate() {
    let blocks = Blocks { sharing: 104, all: 528 };
    for (host_share, expected) in [(1.0, 104), (0.5, 208), (0.25, 416), (0.19, 528), (1e-9, 528), (0.0, 528)] {
        assert_eq!(blocks.of(host_share), expected, "{host_share} of the rows come over the bus");
    }
    // A single cache miss in a million rows does not limit the gather to a fifth of the multiprocessors.
    assert_eq!(blocks.of(1e-6), blocks.all);
}

#[test]
fn blocks_are_as_many_as_lines_are_in_flight() {
    // Half warps have eight rows in flight, of a line by eight bytes a lane or of two by 16; whole ones four, of up to four lines.
    for (row_bytes, lanes, unit, lines, blocks) in [
        (200, 16, 8, 32, 24),
        (256, 16, 16, 64, 12),
        (128, 16, 16, 32, 24),
        (512, 32, 16, 64, 12),
        (400, 32, 16, 64, 12),
        (1044, 32, 4, 16, 48),
        (33, 32, 1, 16, 48),
        (0, 32, 16, 16, 48),
    ] {
        assert_eq!(lines_in_flight(row_bytes, lanes, unit), lines, "rows of {row_bytes} bytes");
        assert_eq!(Blocks::new(768, lines, 2000).sharing, blocks, "rows of {row_bytes} bytes");
    }
    // One block at least, and no more than the device runs.
    assert_eq!([1, 33, 1 << 30].map(|lines| Blocks::new(lines, 32, 64).sharing), [1, 2, 64]);
}
