//! The reason why a rank leaves, as the bytes of a message.

use std::time::Duration;

use morphgl_group::GroupError;

/// A failure as bytes: the first says which.
pub(crate) fn encode(error: &GroupError) -> Vec<u8> {
    match error {
        GroupError::Late { ranks, limit } => {
            let mut words = vec![limit.as_micros() as u64];
            words.extend(ranks.iter().map(|&rank| rank as u64));
            std::iter::once(1).chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
        }
        other => std::iter::once(0).chain(other.to_string().into_bytes()).collect(),
    }
}

/// The failure that rank `from` has sent.
pub(crate) fn decode(from: usize, bytes: &[u8]) -> GroupError {
    match bytes.split_first() {
        Some((1, words)) => {
            let words: Vec<u64> = words.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
            let limit = Duration::from_micros(words.first().copied().unwrap_or(0));
            GroupError::Late { ranks: words.iter().skip(1).map(|&rank| rank as usize).collect(), limit }
        }
        Some((_, why)) => GroupError::Left { rank: from, why: String::from_utf8_lossy(why).into_owned() },
        None => GroupError::Left { rank: from, why: String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_as_they_were_sent() {
        let late = GroupError::Late { ranks: vec![2, 70_000], limit: Duration::from_millis(500) };
        assert_eq!(decode(1, &encode(&late)), late);
        let full = GroupError::Engine("its disk is full".to_string());
        assert_eq!(decode(1, &encode(&full)), GroupError::Left { rank: 1, why: "its disk is full".to_string() });
    }
}
