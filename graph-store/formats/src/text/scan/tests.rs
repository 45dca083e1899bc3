use proptest::prelude::*;

use super::*;

/// `whole` a byte at a time: the reference.
fn byte_by_byte(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|b| b" \t\r\n,;".contains(b)).unwrap_or(text.len());
    let field = std::str::from_utf8(&text[..end]).ok()?;
    if !field.bytes().all(|b| b.is_ascii_digit()) { None } else { field.parse().ok() }
}

proptest! {
    #[test]
    fn words_of_digits_read_as_single_ones(text in "[0-9]{0,22}[ -~\\n\u{80}-\u{ff}]{0,12}") {
        prop_assert_eq!(Scan::new(text.as_bytes()).whole(), byte_by_byte(text.as_bytes()));
    }

    #[test]
    fn any_bytes_have_as_many_digits_as_they_begin_with(bytes: [u8; 8]) {
        let expected = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
        prop_assert_eq!(digits(u64::from_le_bytes(bytes)), expected as u32);
    }

    #[test]
    fn digits_beside_other_bytes_count(digits_before in 0usize..9, value in 0u64..100_000_000, other in prop::sample::select(b"/:\0\x7f\x80\xff,\n".to_vec())) {
        let mut bytes: [u8; 8] = format!("{value:08}").into_bytes().try_into().expect("eight digits");
        bytes[digits_before..].iter_mut().for_each(|b| *b = other);
        prop_assert_eq!(digits(u64::from_le_bytes(bytes)), digits_before as u32);
    }

    #[test]
    fn plain_pairs_are_read_or_left(lines in prop::collection::vec("[0-9]{0,18}[, \\t;x][0-9]{0,18}\r?", 0..6), refused in 0u64..10) {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>() + &" ".repeat(PLAIN);
        // The pairs of the lines up to the first that is not plain or whose target is refused.
        let pair = |line: &String| {
            let (source, target) = line.split_once([',', ' ', '\t', ';'])?;
            let number = |field: &str| field.parse::<u64>().ok().filter(|_| field.len() <= 16);
            number(source).zip(number(target)).filter(|(_, target)| *target != refused)
        };
        let expected: Vec<_> = lines.iter().map_while(pair).collect();
        let (mut scan, mut pairs) = (Scan::new(text.as_bytes()), Vec::new());
        scan.plain_pairs(|b| b", \t;".contains(&b), |source, target| {
            let taken = target != refused;
            pairs.extend(taken.then_some((source, target)));
            taken
        });
        let read: usize = lines[..expected.len()].iter().map(|line| line.len() + 1).sum();
        prop_assert_eq!((&pairs, scan.at, scan.line), (&expected, read, expected.len() as u64));
    }

    #[test]
    fn reals_are_those_of_the_standard_library_bit_by_bit(
        text in "([-+]?[0-9]{0,9}(\\.[0-9]{0,12})?([eE][-+]?[0-9]{1,2})?|[-+]?(inf|Infinity|nan|NaN)|[0-9.eE+x -]{0,5})",
    ) {
        prop_assert_eq!(real(text.as_bytes()).map(f32::to_bits), text.parse::<f32>().ok().map(f32::to_bits));
    }
}
