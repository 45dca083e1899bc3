use super::*;

#[test]
fn elements_and_addresses_that_do_not_exist_are_no_fault() {
    prefetch(&[1u32, 2], 2);
    prefetch_early::<u32>(&[], 0);
    prefetch_line(std::ptr::null::<u8>());
    prefetch_line_early(usize::MAX as *const u8);
}
