use super::*;
use crate::tabular::Texts;

/// The ids of these texts; the texts that repeat another one, and of all that are stored the text.
fn ids(texts: &[&str]) -> (Ids, Vec<usize>) {
    let mut column = Texts::default();
    texts.iter().for_each(|text| column.push(text.as_bytes()));
    let (column, mut ids, mut repeats) = (Values::Texts(column), Ids::Rows(0), Vec::new());
    for row in 0..texts.len() {
        match ids.insert(&column, row, "nodes.csv".as_ref()).expect("few ids") {
            Some(Inserted::New) => {}
            Some(Inserted::Known) | None => repeats.push(row),
        }
    }
    (ids, repeats)
}

#[track_caller]
fn check(texts: &[&str], stored: &[&str], repeats: &[usize]) -> Ids {
    let (ids, found) = ids(texts);
    assert_eq!(found, repeats);
    for (of, text) in (0u32..).zip(stored) {
        let (mut out, mut column) = (Vec::new(), Texts::default());
        ids.write(of, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), *text);
        column.push(text.as_bytes());
        assert_eq!(ids.find(&Values::Texts(column), 0), Some(of), "{text}");
    }
    assert_eq!(ids.len(), stored.len() as u64);
    ids
}

#[test]
fn rows_become_numbers_and_numbers_text() {
    assert!(matches!(check(&["0", "1", "2"], &["0", "1", "2"], &[]), Ids::Rows(3)));
    assert!(matches!(check(&["0", "1", "7", "1", "3.0"], &["0", "1", "7", "3"], &[3]), Ids::Numbers(..)));
    assert!(matches!(check(&["0", "5", "a", "5", "0", "b"], &["0", "5", "a", "b"], &[3, 4]), Ids::Texts(_)));
    // Zeros in front make another id of it, and -1 is none that is counted.
    assert!(matches!(check(&["7", "007", "-1", ""], &["7", "007", "-1"], &[3]), Ids::Texts(_)));
}

#[test]
fn numbers_of_arrays_are_found() {
    let ints = |id| Values::Ints(vec![id], None);
    for (texts, id, found) in
        [(&["0", "1"][..], 1, Some(1)), (&["0", "1"], 2, None), (&["5", "4"], 4, Some(1)), (&["a", "4"], 4, Some(1))]
    {
        assert_eq!(ids(texts).0.find(&ints(id), 0), found, "{id} of {texts:?}");
    }
    assert_eq!(ids(&["0", "1"]).0.find(&ints(-1), 0), None);
}
