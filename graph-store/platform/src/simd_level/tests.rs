use super::*;

#[test]
fn available_levels_ascend_to_the_one_in_force() {
    let all: Vec<SimdLevel> = SimdLevel::available().collect();
    assert_eq!((all.first(), all.last()), (Some(&SimdLevel::Portable), Some(&SimdLevel::current())));
    assert!(all.is_sorted() && SimdLevel::current() <= SimdLevel::detected());
}

#[test]
fn names_are_parsed_as_they_are_printed() {
    for level in SimdLevel::ALL {
        assert_eq!(level.to_string().parse(), Ok(*level));
    }
}

#[test]
fn an_unknown_level_is_refused_with_the_list() {
    let error = "avx9".parse::<SimdLevel>().expect_err("unknown level").to_string();
    assert!(error.starts_with("MORPHGL_ISA=avx9: no SIMD level of this architecture; there are portable"), "{error}");
    assert!(error.ends_with(SimdLevel::detected().name()), "{error}");
}
