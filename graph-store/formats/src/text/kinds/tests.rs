use super::*;

#[test]
fn names_tell_kinds_of_nodes_from_ends_of_edges() {
    let two = |source: &str, target: &str| two_kinds(&[source.to_string(), target.to_string()]);
    for (source, target) in [
        ("userId", "movieId"),
        ("userid", "movieid"),
        ("user_id", "item_id"),
        ("author", "paper"),
        ("src_author", "dst_paper"),
        ("reviewerID", "asin"),
        ("customer", "product"),
        ("inventor", "patent"),
        ("users", "Target"),
    ] {
        assert!(two(source, target), "{source} and {target}");
        assert!(two(target, source), "{target} and {source}");
    }
    for (source, target) in [
        ("src", "dst"),
        ("Source", "Target"),
        ("from_stop", "to_stop"),
        ("fromStop", "toStop"),
        ("source_user_id", "target_user_id"),
        ("user_1", "user_2"),
        ("user1", "user2"),
        ("userId1", "userId2"),
        ("a", "b"),
        ("id_1", "id_2"),
        ("follower", "followed"),
        ("citing_paper", "cited_paper"),
        ("node_a", "node_b"),
        ("start_id", "end_id"),
        ("u", "v"),
    ] {
        assert!(!two(source, target), "{source} and {target}");
        assert!(!two(target, source), "{target} and {source}");
    }
}
