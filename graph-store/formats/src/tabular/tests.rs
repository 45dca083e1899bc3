use super::*;

#[test]
fn whole_numbers_are_exact_or_refused() {
    let mut texts = Texts::default();
    let fields = ["7", " -3 ", "123456789.0", "9007199254740993", "", "NaN", "2.5", "x", "1e400"];
    fields.iter().for_each(|field| texts.push(field.as_bytes()));
    let values = Values::Texts(texts);
    let found: Vec<_> = (0..fields.len()).map(|i| values.int(i).map_err(|_| ())).collect();
    let whole = |v| Ok(Some(v));
    let expected = [
        whole(7),
        whole(-3),
        whole(123_456_789),
        whole(9_007_199_254_740_993),
        Ok(None),
        Ok(None),
        Err(()),
        Err(()),
        Err(()),
    ];
    assert_eq!(found, expected);
}
