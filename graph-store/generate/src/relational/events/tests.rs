use super::*;
use crate::node_data::NodeConfig;
use crate::random::Purpose;
use morphgl_graph_store::Dtype;

fn data(nodes: u64, classes: usize, seed: u64) -> NodeData {
    let splits = [0.6, 0.2, 0.2];
    let config = NodeConfig { nodes, classes, dim: 1, dtype: Dtype::F32, signal: 0.0, label_noise: 0.0, splits, seed };
    NodeData::new(config).unwrap()
}

/// Every event has one customer and one product, who find it among theirs.
#[test]
fn keys_and_their_reverses_agree() {
    for (classes, homophily) in [(1, 1.0), (3, 0.0), (4, 0.6), (5, 1.0)] {
        let (customers, products, events) = (data(41, classes, 1), data(11, classes, 2), 30 * classes as u64);
        let law = PowerLaw::with_mean(1.0, 4.0, 2.5);
        let key = Key::new(7, Purpose::Edges);
        let all = Events::new(key, events, homophily, (&customers, &law), (&products, &law));
        let mut found = [0, 0];
        for customer in 0..41 {
            for event in all.of_customer(&customers, customer) {
                assert_eq!(all.customer(&customers, event), customer);
                found[0] += 1;
            }
        }
        for product in 0..11 {
            for event in all.of_product(&products, product) {
                assert_eq!(all.product(&products, event), product);
                found[1] += 1;
            }
        }
        assert_eq!(found, [events, events]);
        let class = |data: &NodeData, node: u32| data.class_of_rank(data.rank(u64::from(node)));
        let same = (0..events as u32).filter(|&event| {
            class(&customers, all.customer(&customers, event)) == class(&products, all.product(&products, event))
        });
        let expected = homophily + (1.0 - homophily) / classes as f64;
        let share = same.count() as f64 / events as f64;
        assert!((share - expected).abs() < 0.15, "{share} of one class, expected {expected}");
    }
}
