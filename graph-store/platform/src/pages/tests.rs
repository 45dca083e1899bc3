use super::*;

#[test]
fn every_length_is_aligned_zero_and_whole() {
    for len in [0, 1, 63, 4096, 5000, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE] {
        let mut pages = Pages::zeroed(len).expect("a little memory");
        assert_eq!((pages.len(), pages.as_ptr().align_offset(if len == 0 { 8 } else { 64 })), (len, 0), "{len}");
        assert!(pages.capacity() >= len && pages.iter().all(|&byte| byte == 0), "{len}");
        if len >= HUGE {
            assert_eq!(pages.as_ptr().align_offset(HUGE), 0, "{len}");
        }
        pages.fill(7);
        assert_eq!(pages.clone(), pages);
    }
}

#[test]
fn shrinking_and_growing_within_the_capacity_moves_nothing() {
    let mut pages = Pages::new();
    pages.resize(HUGE).fill(1);
    let at = pages.as_ptr();
    pages.resize(10);
    assert_eq!((&pages[..], pages.capacity()), (&[1; 10][..], 2 * HUGE));
    assert_eq!(pages.resize(HUGE + 1)[HUGE - 1..], [1, 0]);
    assert_eq!(pages.as_ptr(), at);
    assert!(pages.resize(2 * HUGE + 1).iter().all(|&byte| byte == 0));
}

#[test]
fn equality_is_that_of_content() {
    let (mut a, mut b) = (Pages::new(), Pages::zeroed(5000).expect("a little memory"));
    assert_ne!(a, b);
    b.resize(0);
    assert_eq!(a, b);
    a.resize(3).copy_from_slice(&[1, 2, 3]);
    b.resize(3).copy_from_slice(&[1, 2, 3]);
    assert_eq!(a, b);
}

#[test]
fn a_dropped_buffer_returns_to_its_pool_while_that_exists() {
    let pool = PagePool::new();
    let (mut a, mut b) = (pool.take(), pool.take());
    let at = a.resize(100).as_ptr();
    b.resize(100);
    drop(b.clone());
    drop(pool.take());
    assert_eq!(pool.waiting(), 0);
    drop(b);
    std::thread::spawn(move || drop(a)).join().expect("a thread that drops");
    assert_eq!(pool.waiting(), 2);
    let mut again = pool.take();
    assert_eq!((again.len(), again.resize(100).as_ptr()), (0, at));
    drop(pool);
    drop(again);
}
