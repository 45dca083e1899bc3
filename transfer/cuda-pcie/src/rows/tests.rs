use super::Blocks;

#[test]
fn host_reads_in_flight_do_not_depend_on_the_hit_rate() {
    let blocks = Blocks { sharing: 104, all: 528 };
    for (host_share, expected) in [(1.0, 104), (0.5, 208), (0.25, 416), (0.19, 528), (1e-9, 528), (0.0, 528)] {
        assert_eq!(blocks.of(host_share), expected, "{host_share} of the rows come over the bus");
    }
    // A single cache miss in a million rows does not limit the gather to a fifth of the multiprocessors.
    assert_eq!(blocks.of(1e-6), blocks.all);
}
