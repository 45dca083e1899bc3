use super::*;

fn header(names: &str) -> Header {
    Header::new(names.split(','), true)
}

#[test]
fn columns_are_selected_by_names_numbers_ranges_and_patterns() {
    let names = header("id,label,f0,f1,f10,age,2-3");
    let select = |text: &str, taken: &[usize]| {
        let column = |t: &str| t.parse().map_or_else(|_| Column::Name(t.to_string()), Column::Number);
        select(&names, &text.split(',').map(column).collect::<Vec<_>>(), taken, "--feature-columns")
            .map_err(|(what, _)| what)
    };
    assert_eq!(select("3-5", &[]), Ok(vec![2, 3, 4]));
    assert_eq!(select("AGE,3-4,f*", &[]), Ok(vec![5, 2, 3, 4]));
    assert_eq!(select("f?", &[]), Ok(vec![2, 3]));
    assert_eq!(select("*", &[0, 1]), Ok(vec![2, 3, 4, 5, 6]));
    assert_eq!(select("2-3", &[]), Ok(vec![6]), "the name of a column before a range");
    assert_eq!(select("1-3", &[0]), Err("the column \"id\" is read as ids, labels, a split or targets".to_string()));
    for wrong in ["5-3", "0-2", "3-8", "g*", "8", "x"] {
        assert!(select(wrong, &[]).is_err(), "{wrong}");
    }
    let unnamed = Header::new(["0.5", "1"], false);
    assert_eq!(super::select(&unnamed, &[Column::Name("1-2".into())], &[], "--target-columns"), Ok(vec![0, 1]));
    assert!(super::select(&unnamed, &[Column::Name("*".into())], &[], "--target-columns").is_err());
}

#[test]
fn lists_are_short() {
    let all = |names: &str| list(&names.split(',').collect::<Vec<_>>());
    assert_eq!(all("f0,f1,f2,age,w1,w2,x3,x5,x6,x7"), "f0…f2, age, w1, w2, x3, x5…x7");
    assert_eq!(all(",a b,é-1"), "\"\", \"a b\", é-1");
    let many: Vec<String> = (0..1433).map(|i| format!("word{}", i * 7)).collect();
    let many = list(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(many.len() < 160 && many.ends_with("… (1433 in all)"), "{many}");
    assert_eq!(numbers(&[1, 2, 3, 7, 9, 10]), "2-4,8,10-11");
    assert_eq!(listed(&Header::new(["1"; 6], false), &[0, 1, 2, 5]), "1-3, 6");
}

#[test]
fn patterns_match_whole_names() {
    for (pattern, name, expected) in
        [("f*", "f", true), ("*a*b", "xaab", true), ("f?", "f", false), ("", "", true), ("f*", "gf", false)]
    {
        assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
    }
}
