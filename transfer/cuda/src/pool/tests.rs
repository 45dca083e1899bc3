use super::class;

#[test]
fn classes_waste_at_most_a_quarter() {
    for bytes in (1..100_000).chain([1 << 30, (1 << 30) + 1]) {
        let class = class(bytes);
        assert!(class >= bytes && class <= (bytes + bytes / 4).max(512), "{bytes}: {class}");
    }
    assert_eq!(class(usize::MAX), usize::MAX);
}
