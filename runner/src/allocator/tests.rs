use std::ffi::{c_int, c_long};

unsafe extern "C" {
    fn mi_option_get(option: c_int) -> c_long;
}

#[test]
fn the_option_number_is_that_of_the_purge_delay() {
    // SAFETY: the declaration is mimalloc's.
    let get = || unsafe { mi_option_get(super::PURGE_DELAY) };
    assert_eq!(get(), super::PURGE_DELAY_DEFAULT, "mimalloc's options are numbered otherwise: see its mimalloc.h");
    super::keep_freed(true);
    assert_eq!(get(), -1);
    super::keep_freed(false);
    assert_eq!(get(), super::PURGE_DELAY_DEFAULT);
}
