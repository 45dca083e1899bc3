use super::*;

fn names(ends: &[u64], bytes: &[u8]) -> std::result::Result<NodeNames, u64> {
    NodeNames::new(ends.to_vec().into(), bytes.to_vec().into())
}

#[test]
fn names_are_found_by_node_and_nodes_by_name() {
    let names = names(&[0, 5, 8, 13], b"alicebobcarol").unwrap();
    for (node, name) in [(0, ""), (1, "alice"), (2, "bob"), (3, "carol")] {
        assert_eq!((names.get(node), names.find(name.as_bytes())), (name.as_bytes(), Some(node)));
    }
    assert_eq!(names.find(b"bo"), None);
}

#[test]
fn names_in_any_order_are_found() {
    let names = names(&[5, 8, 8, 11], b"carolboband").unwrap();
    for (node, name) in [(0, "carol"), (1, "bob"), (2, ""), (3, "and")] {
        assert_eq!((names.get(node), names.find(name.as_bytes())), (name.as_bytes(), Some(node)));
    }
    assert_eq!(names.find(b"bo"), None);
}

#[test]
fn impossible_names_are_refused() {
    for (ends, bytes, node) in [
        (&[3, 2][..], &b"abc"[..], 1),
        (&[4], b"abc", 0),
        (&[1, 2], b"aa", 1),
        (&[1, 2, 3], b"bab", 2),
        (&[1], b"ab", 1),
        (&[u64::MAX], b"ab", 0),
    ] {
        assert_eq!(names(ends, bytes).unwrap_err(), node, "{ends:?}");
    }
}
