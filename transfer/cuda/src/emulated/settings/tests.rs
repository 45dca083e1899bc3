use super::Settings;

#[test]
fn settings_are_parsed() {
    let expected = Settings { late: true, memory: 1000, ..Settings::default() };
    assert_eq!(Settings::parse("late,memory=1000"), Ok(expected));
    let expected = Settings { devices: 3, apart: vec![[0, 2], [1, 2]], ..Settings::default() };
    assert_eq!(Settings::parse("devices=3,apart=0-2,apart=1-2"), Ok(expected.clone()));
    assert_eq!([[0, 1], [2, 0], [1, 2]].map(|[i, j]| expected.reaches(i, j)), [true, false, false]);
    assert_eq!(Settings::parse(""), Ok(Settings::default()));
    for wrong in ["early", "late=1", "memory", "locked=many", "devices=-1", "apart", "apart=1"] {
        let error = Settings::parse(wrong).expect_err("an invalid setting");
        assert!(error.contains(wrong) && error.contains("give late"), "{error}");
    }
}
