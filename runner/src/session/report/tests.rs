use std::time::{Duration, UNIX_EPOCH};

use super::{shell_word, utc};

#[test]
fn dates_are_those_of_the_calendar() {
    // By `date -u -d @SECONDS`.
    for (seconds, words) in [
        (0, "1970-01-01 00:00 UTC"),
        (951_782_399, "2000-02-28 23:59 UTC"),
        (951_782_400, "2000-02-29 00:00 UTC"),
        (951_868_800, "2000-03-01 00:00 UTC"),
        (1_795_752_000, "2026-11-27 04:00 UTC"),
        (4_107_542_399, "2100-02-28 23:59 UTC"),
        (4_107_542_400, "2100-03-01 00:00 UTC"),
    ] {
        assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), words);
    }
}

#[test]
fn words_of_the_shell_are_quoted_where_they_have_to_be() {
    for (argument, word) in [
        ("--lr=0.01", "--lr=0.01"),
        ("runs/1", "runs/1"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", r"'it'\''s'"),
        ("$(x)", "'$(x)'"),
    ] {
        assert_eq!(shell_word(argument), word);
    }
}
