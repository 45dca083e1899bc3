use super::*;

#[test]
fn both_byte_orders_and_every_width_decode() {
    let mut ints = Vec::new();
    ElementType::parse(">i4").unwrap().ints(&[0, 0, 1, 2], &mut ints).unwrap();
    ElementType::parse("<i8").unwrap().ints(&(-5i64).to_le_bytes(), &mut ints).unwrap();
    ElementType::parse("<u8").unwrap().ints(&u64::MAX.to_le_bytes(), &mut ints).unwrap();
    ElementType::parse("|b1").unwrap().ints(&[1, 0], &mut ints).unwrap();
    assert_eq!(ints, [258, -5, i64::MAX, 1, 0]);
    assert_eq!(
        ElementType::parse("<f4").unwrap().ints(&[0; 4], &mut ints),
        Err("elements of type float32, expected integers".into())
    );
    let mut floats = Vec::new();
    ElementType::parse("<f2").unwrap().floats(&f16::from_f32(1.5).to_le_bytes(), &mut floats).unwrap();
    ElementType::parse("<f8").unwrap().floats(&0.1f64.to_le_bytes(), &mut floats).unwrap();
    assert_eq!(floats, [1.5, 0.1f32]);
}

#[test]
fn labels_take_nan_for_none_and_refuse_fractions() {
    let mut labels = Vec::new();
    let float = ElementType::parse("<f4").unwrap();
    let bytes: Vec<u8> = [f32::NAN, 3.0, 0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    float.labels(&bytes, &mut labels).unwrap();
    assert_eq!(labels, [-1, 3, 0]);
    assert_eq!(
        float.labels(&0.5f32.to_le_bytes(), &mut labels),
        Err("the label is 0.5, neither a class number nor -1 (none)".into())
    );
    let int = ElementType::parse("<i8").unwrap();
    assert_eq!(
        int.labels(&(-2i64).to_le_bytes(), &mut labels),
        Err("the label is -2, neither a class number nor -1 (none)".into())
    );
}

#[test]
fn types_that_are_no_numbers_are_named() {
    assert_eq!(ElementType::parse("<U10").unwrap().size, 40);
    assert_eq!(ElementType::parse("|O").unwrap().kind, Kind::Object);
    assert_eq!(ElementType::parse("<M8[ns]").unwrap().kind, Kind::Other);
    for bad in ["", "<", "<i3", "i", "<f16", "x4", "<i99999999999"] {
        assert_eq!(ElementType::parse(bad), None, "{bad:?}");
    }
}
