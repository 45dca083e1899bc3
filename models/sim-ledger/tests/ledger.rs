//! Ledgers survive serialisation as f32 tensors exactly.

use morphgl_registry::BatchId;
use morphgl_training_sim_ledger::{Entry, Ledger};
use proptest::prelude::*;

fn ledgers() -> impl Strategy<Value = Ledger> {
    let id = (0u32..4, any::<u32>()).prop_map(|(epoch, index)| BatchId { epoch, index });
    let entry = any::<(u32, u64, u32)>().prop_map(|(times, digest, changes)| Entry { times, digest, changes });
    prop::collection::btree_map(id, entry, 0..20).prop_map(|entries| Ledger { entries })
}

proptest! {
    #[test]
    fn tensors_and_back(ledger in ledgers()) {
        let tensors = ledger.tensors();
        prop_assert_eq!(Ledger::from_tensors(&tensors).expect("what was written"), ledger);
    }

    #[test]
    fn corrupt_tensors_are_errors(ledger in ledgers(), value in prop_oneof![Just(-1.0f32), Just(0.5), Just(65536.0), Just(f32::NAN)]) {
        let mut tensors = ledger.tensors();
        prop_assume!(!tensors.is_empty());
        tensors[0].values[3] = value;
        prop_assert!(Ledger::from_tensors(&tensors).is_err());
        tensors[0].values.pop();
        prop_assert!(Ledger::from_tensors(&tensors).is_err());
    }
}
