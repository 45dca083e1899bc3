use super::*;

#[test]
fn a_buffer_keeps_what_is_written() {
    let mut buffer = Buffer::default();
    assert!(buffer.get(0).is_empty() && buffer.read(0).is_empty());
    buffer.get(10).fill(3.0);
    assert_eq!(buffer.read(10), [3.0; 10]);
    buffer.get(4)[3] = 4.0;
    assert_eq!(buffer.read(5), [3.0, 3.0, 3.0, 4.0, 3.0]);
}

#[test]
fn a_buffer_that_got_no_memory_is_used_again() {
    let mut buffer = Buffer::default();
    buffer.get(100).fill(1.0);
    // The last one would wrap around to a few bytes.
    for len in [usize::MAX / 16, usize::MAX / 4, usize::MAX / 9 * 2 + 1] {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.get(len).len()));
        assert!(outcome.is_err(), "{len} floats are more than any memory has");
        assert_eq!((buffer.len(), buffer.get(50).len()), (0, 50));
        buffer.get(50).fill(2.0);
        assert_eq!(buffer.read(50), [2.0; 50]);
    }
}
