use super::*;

fn epochs(shuffle: bool) -> Epochs {
    let seeds = SeedSet::new("seeds", &[4, 2, 9, 7, 1], 10).expect("seeds of ten nodes");
    Epochs::new(&seeds, &SamplerSettings { batch_size: 2, shuffle, ..SamplerSettings::default() })
}

#[test]
fn an_epoch_has_every_seed_once() {
    for shuffle in [false, true] {
        let epochs = epochs(shuffle);
        let mut order = None;
        for epoch in [0, 1, 2, 1, 0] {
            let batches = (0..3).map(|index| BatchId { epoch, index });
            let found: Vec<Vec<u32>> =
                batches.map(|id| epochs.seeds(id, 0..usize::MAX, &mut order).expect("a mini-batch").to_vec()).collect();
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
            let mut expected = epochs.seeds.nodes().to_vec();
            if shuffle {
                permute(epochs.seed, epoch, &mut expected);
            }
            assert_eq!(found.concat(), expected, "epoch {epoch}");
        }
        let cached = epochs.orders.lock().expect("no thread panicked").len();
        assert_eq!(cached, if shuffle { ORDERS } else { 1 });
    }
}

#[test]
fn a_mini_batch_after_the_last_is_refused() {
    let error =
        epochs(true).seeds(BatchId { epoch: 0, index: 3 }, 0..usize::MAX, &mut None).expect_err("there are three");
    assert!(error.to_string().ends_with("an epoch has 3; ask for an index below that"), "{error}");
}

#[test]
fn another_place_is_refused() {
    assert!(check_host(&Place::Host).is_ok());
    let place = "cuda:0".parse().expect("a place");
    let error = check_host(&place).expect_err("no host").to_string();
    assert_eq!(error, "place: sampling on the CPU runs at host, not at cuda:0; choose a sampler of that device");
}

#[test]
fn a_worker_has_a_thread() {
    assert!(check_threads(1).is_ok());
    assert!(check_threads(0).is_err_and(|e| e.to_string().ends_with("give at least 1")));
}

#[test]
fn a_sum_is_rounded_once() {
    assert_eq!(weight_sum(&[16_777_216.0, 1.0, 1.0]), 16_777_218.0);
}
