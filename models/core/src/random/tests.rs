use super::*;

#[test]
fn a_mask_is_the_same_in_parts() {
    let mask = Dropout::new(7, 3, 2, 1, DropoutSite::Hidden, 0.6).expect("it drops");
    let mut whole = [0.0; 300];
    mask.fill([RowPart { node: 5, first: 0, len: 300 }].into_iter(), &mut whole);
    for start in [0, 1, 7, 63, 64, 65, 200] {
        let parts = [(9, 3, 7), (5, start, 50), (5, 0, 0), (9, 0, 10)];
        let mut factors = [0.0; 67];
        mask.fill(parts.map(|(node, first, len)| RowPart { node, first, len }).into_iter(), &mut factors);
        assert_eq!(factors[7..57], whole[start as usize..start as usize + 50], "from {start}");
        assert_eq!(factors[..7], factors[60..], "node 9");
    }
    assert!(whole.iter().enumerate().all(|(e, &f)| mask.keeps(5, e as u64) == (f != 0.0)));
}

#[test]
fn rows_of_any_order_have_their_nodes_masks() {
    let mask = Dropout::new(7, 3, 2, 1, DropoutSite::Hidden, 0.5).expect("it drops");
    for width in [1, 3, 8, 17, 70] {
        let nodes = [4, u32::MAX, 0, 17];
        let mut values: Vec<f32> = (0..nodes.len() * width).map(|i| 1.0 + i as f32).collect();
        mask.apply(&nodes, &mut values);
        for (i, &value) in values.iter().enumerate() {
            let kept = mask.keeps(nodes[i / width], (i % width) as u64);
            assert_eq!(value, if kept { (1.0 + i as f32) * mask.scale() } else { 0.0 }, "element {i}, width {width}");
        }
    }
    mask.apply(&[], &mut []);
}

/// The bits are those of an independent computation, so that they do not change unnoticed: models trained before would
/// not be continued alike.
#[test]
fn bits_are_pinned() {
    let mask = Dropout::new(0x0123_4567_89ab_cdef, 5, 6, 2, DropoutSite::Attention, 0.5).expect("it drops");
    let bits = |node| (0..64).fold(0u64, |bits, e| bits << 1 | u64::from(mask.keeps(node, e)));
    assert_eq!([bits(0), bits(123_456_789)], [0xeddb_94af_0310_cea3, 0x7892_834d_cd3f_8ca9]);
}

#[test]
fn a_mask_keeps_the_expected_share() {
    for p in [0.1f32, 0.5, 0.6, 0.9] {
        // Of a long row, and of the first elements of many nodes.
        for (nodes, len) in [(1, 200_000), (200_000, 1)] {
            let mut factors = vec![0.0; 200_000];
            let parts = (0..nodes).map(|node| RowPart { node, first: 0, len });
            Dropout::new(1, 0, 0, 0, DropoutSite::Input, p).expect("it drops").fill(parts, &mut factors);
            let mean = factors.iter().map(|&f| f64::from(f)).sum::<f64>() / factors.len() as f64;
            // Four standard errors of the mean of factors with variance p / (1 - p).
            let error = 4.0 * (f64::from(p) / (1.0 - f64::from(p)) / factors.len() as f64).sqrt();
            assert!((mean - 1.0).abs() < error, "mean factor {mean} at {p}");
        }
    }
}

#[test]
fn masks_differ_in_each_input() {
    let bits = |seed, epoch, batch, layer, site| {
        let mask = Dropout::new(seed, epoch, batch, layer, site, 0.5).expect("it drops");
        (0..64).fold(0u64, |bits, e| bits << 1 | u64::from(mask.keeps(0, e)))
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
