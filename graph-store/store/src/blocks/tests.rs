use proptest::prelude::*;

use super::write_blocks;
use crate::{Error, Position};

proptest! {
    #[test]
    fn blocks_are_written_once_in_order(blocks in 0usize..40, group in 1usize..10) {
        let mut written = Vec::new();
        let write = |block| {
            written.push(block);
            Ok(())
        };
        write_blocks(blocks, group, |block| block, write).expect("nothing fails");
        prop_assert_eq!(written, (0..blocks).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_written_after_an_error(blocks in 1usize..40, group in 1usize..10, at in 0usize..40) {
        let mut written = 0;
        let write = |block| {
            written += 1;
            if block == at { Err(Error::invalid("array", Position::File, "full", "free space")) } else { Ok(()) }
        };
        prop_assert_eq!(write_blocks(blocks, group, |block| block, write).is_err(), at < blocks);
        prop_assert_eq!(written, blocks.min(at + 1));
    }
}
