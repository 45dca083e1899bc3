use super::*;

/// Rates of copies on a machine of links, each with its bandwidth and devices; a device alone copies at its own rate.
fn machine<'a>(own: &'a [f64], links: &'a [(f64, &'a [usize])]) -> impl FnMut(&[usize]) -> Result<Vec<f64>> + 'a {
    move |members| {
        // All users of a link are slowed down by the same factor, by the slowest of their links.
        let slowdown = |device: usize| {
            let of = |(bandwidth, users): &(f64, &[usize])| {
                let wanted: f64 = members.iter().filter(|m| users.contains(m)).map(|&m| own[m]).sum();
                if users.contains(&device) { wanted / bandwidth } else { 1.0 }
            };
            links.iter().map(of).fold(1.0, f64::max)
        };
        Ok(members.iter().map(|&device| own[device] / slowdown(device)).collect())
    }
}

#[track_caller]
fn found(own: &[f64], links: &[(f64, &[usize])]) -> Vec<Vec<(usize, f64)>> {
    let found = find(own.len(), machine(own, links)).expect("nothing fails");
    let rounded = |(device, fraction): &(usize, f64)| (*device, (1000.0 * fraction).round() / 1000.0);
    found.iter().map(|link| link.iter().map(rounded).collect()).collect()
}

#[test]
fn devices_with_links_of_their_own_share_none() {
    assert_eq!(found(&[10.0, 20.0, 30.0], &[]), Vec::<Vec<_>>::new());
    assert_eq!(found(&[10.0, 10.0], &[(25.0, &[0, 1])]), Vec::<Vec<_>>::new(), "it is never full");
}

#[test]
fn switches_are_found_with_what_each_device_takes() {
    let switches: [(f64, &[usize]); 2] = [(10.0, &[0, 2]), (12.0, &[1, 3])];
    let found = found(&[10.0, 9.0, 10.0, 9.0], &switches);
    assert_eq!(found, [vec![(0, 1.0), (2, 1.0)], vec![(1, 0.75), (3, 0.75)]]);
}

/// No two devices fill the host's memory, and all four do.
#[test]
fn the_hosts_memory_is_found_where_all_copy_at_once() {
    let links: [(f64, &[usize]); 2] = [(16.0, &[0, 1]), (20.0, &[0, 1, 2, 3])];
    let found = found(&[10.0; 4], &links);
    assert_eq!(found, [vec![(0, 0.625), (1, 0.625)], vec![(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]]);
}

#[test]
fn a_link_of_all_devices_is_one_link() {
    let found = found(&[10.0, 5.0, 10.0], &[(10.0, &[0, 1, 2])]);
    assert_eq!(found, [vec![(0, 1.0), (1, 0.5), (2, 1.0)]]);
}
