use super::*;

#[test]
fn a_mask_is_the_same_in_pieces() {
    let mask = Dropout::new(7, 3, 2, 1, DropoutSite::Hidden, 0.6).expect("it drops");
    let mut whole = [0.0; 300];
    mask.fill(0, &mut whole);
    for start in [0, 1, 7, 63, 64, 65, 200] {
        let mut piece = [0.0; 50];
        mask.fill(start, &mut piece);
        assert_eq!(piece, whole[start as usize..start as usize + 50], "from {start}");
    }
    assert!(whole.iter().enumerate().all(|(e, &f)| mask.keeps(e as u64) == (f != 0.0)));
}

#[test]
fn a_mask_keeps_the_expected_share() {
    for p in [0.1f32, 0.5, 0.6, 0.9] {
        let mut factors = vec![0.0; 200_000];
        Dropout::new(1, 0, 0, 0, DropoutSite::Input, p).expect("it drops").fill(0, &mut factors);
        let mean = factors.iter().map(|&f| f64::from(f)).sum::<f64>() / factors.len() as f64;
        // Four standard errors of the mean of factors with variance p / (1 - p).
        let error = 4.0 * (f64::from(p) / (1.0 - f64::from(p)) / factors.len() as f64).sqrt();
        assert!((mean - 1.0).abs() < error, "mean factor {mean} at {p}");
    }
}

#[test]
fn masks_differ_in_each_input() {
    let bits = |seed, epoch, batch, layer, site| {
        let mut factors = [0.0; 64];
        Dropout::new(seed, epoch, batch, layer, site, 0.5).expect("it drops").fill(0, &mut factors);
        factors.iter().fold(0u64, |bits, &f| bits << 1 | u64::from(f != 0.0))
    };
    let hidden = DropoutSite::Hidden;
    let all = [
        bits(0, 0, 0, 0, hidden),
        bits(1, 0, 0, 0, hidden),
        bits(0, 1, 0, 0, hidden),
        bits(0, 0, 1, 0, hidden),
        bits(0, 0, 0, 1, hidden),
        bits(0, 0, 0, 0, DropoutSite::Input),
        bits(0, 0, 0, 0, DropoutSite::Attention),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|b| b != a), "mask {i} is a mask seen before");
    }
}
